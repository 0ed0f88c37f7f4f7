package check

import (
	"os"
	"runtime"
	"syscall"
	"testing"
)

// asNobody runs f as a user who may read only what all users may read, also if the tests run as root,
// who may read everything.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread() // the identity is the thread's
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}
