package reactor

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/ring"
)

// To cancel all receives takes the kernel long when there are thousands, and it completes a few of them a turn.
func TestReceivesAreCancelledOnceForAsLongAsSomeComplete(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := ring.New(256)
	must(err)
	must(r.Enable())
	p, err := NewRingPoller(r, false)
	must(err)
	defer p.Close()
	b, err := r.NewBuffers(128, 1024)
	must(err)
	defer b.Close()
	const receives = 2 * eventsATurn
	for i := range receives {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(err)
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		p.Receive(pair[0], b, true, Token{Kind: 1, Index: int32(i)})
	}
	p.Poll()
	completed, cancelled := 0, 0
	for turns := 0; !p.Empty(); turns++ {
		if turns == 1000 {
			t.Fatalf("%d of %d receives have completed", completed, receives)
		}
		if n := r.Unsubmitted(); n > 0 {
			cancelled += n
			if len(p.Completions()) > 0 {
				t.Errorf("a turn that brought %d completions cancels once more", len(p.Completions()))
			}
		}
		p.Poll()
		completed += len(p.Completions())
	}
	if completed != receives || cancelled == 0 {
		t.Errorf("%d of %d receives have completed, and %d times all were cancelled", completed, receives, cancelled)
	}
}
