//go:build linux

package patroni

import (
	"testing"

	"kubeproxy/scripts/internal/measure/measuretest"
)

func TestWhatMayNeverHappenIsMissedByOneRoundOfMany(t *testing.T) {
	measuretest.OneRoundOfMany(t, columns, barsOf(switchover, writerPaths))
	measuretest.OneRoundOfMany(t, readerColumns, readerBars)
}
