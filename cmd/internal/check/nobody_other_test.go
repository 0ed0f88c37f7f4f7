//go:build !linux

package check

import (
	"os"
	"testing"
)

// asNobody runs f as the user who runs the tests. If that is root, who may read everything, the test is skipped:
// to be another user for a while, and root again, is what only Linux can do for a single thread
// (setfsuid(2)). Elsewhere the whole process would change, with all the tests that run beside.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip("run by root, who may read everything; only on Linux can one thread be somebody else for a while")
	}
	f()
}
