//go:build !linux

package check

import (
	"os"
	"testing"
)

// asNobody runs f as whoever runs the tests. Root may read everything.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	f()
}
