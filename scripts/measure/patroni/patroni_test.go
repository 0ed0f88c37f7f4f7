//go:build linux

package patroni

import (
	"testing"

	"kubeproxy/scripts/internal/measure/measuretest"
)

func TestWhatMayNeverHappenIsMissedByOneRoundOfMany(t *testing.T) {
	measuretest.OneRoundOfMany(t, columns, bars)
	measuretest.OneRoundOfMany(t, readerColumns, readerBars)
}
