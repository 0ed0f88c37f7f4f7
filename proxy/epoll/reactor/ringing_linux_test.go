package reactor

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
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

// What a socket did not take of a message is to be sent once it has room, and epoll watches for that only when the loop knows. So the completion of
// such a send ends a wait in which nothing else happens, however often something has happened before.
func TestAWaitDoesNotOutlastForLongASendThatWasCutShort(t *testing.T) {
	for _, mayBlock := range []bool{false, true} {
		for _, dense := range []bool{false, true} {
			t.Run(fmt.Sprintf("mayBlock=%t,dense=%t", mayBlock, dense), func(t *testing.T) {
				p, sock, _ := ringPollerWith(t, mayBlock)
				p.dense = dense
				message := make([]byte, 8<<20)
				p.Send(sock, message, Token{Kind: 1})
				until := monotonic.Now() + 10*time.Second
				for len(p.Completions()) == 0 && monotonic.Now() < until {
					p.Wait(monotonic.Now(), until)
				}
				if monotonic.Now() >= until {
					t.Error("the wait lasts until something else is due")
				}
				if done := p.Completions(); len(done) != 1 || done[0].Result <= 0 || int(done[0].Result) >= len(message) {
					t.Errorf("%+v; want a send that was cut short", done)
				}
			})
		}
	}
}

// While events come close upon one another, the answer to a message ends the wait, and not its send: one turn handles both.
func TestABusyLoopIsNotWokenByWhatItSends(t *testing.T) {
	for _, mayBlock := range []bool{false, true} {
		p, sock, peer := ringPollerWith(t, mayBlock)
		b, err := p.ring.NewBuffers(1, 100)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		go func() {
			for one := make([]byte, 1); ; {
				if n, _ := unix.Read(peer, one); n != 1 {
					return
				}
				_, _ = unix.Write(peer, one)
			}
		}()
		together := false
		for rounds := 0; rounds < 1000 && !together; rounds++ { // one whose answer comes within blockFor is enough
			p.dense = true
			p.Receive(sock, b, true, Token{Kind: 1})
			p.Send(sock, []byte("x"), Token{Kind: 2})
			for underWay := 2; underWay > 0; underWay -= len(p.Completions()) {
				p.Wait(monotonic.Now(), monotonic.Now()+10*time.Second)
				together = together || len(p.Completions()) == 2
				for _, done := range p.Completions() {
					if id, _, has := b.Take(&done); has {
						b.GiveBack(id)
					}
				}
			}
		}
		if !together {
			t.Errorf("mayBlock %t: no wait has brought a send together with the answer", mayBlock)
		}
		_ = unix.Shutdown(sock, unix.SHUT_WR)
	}
}

// ringPollerWith returns a poller with a ring that belongs to the test, and both ends of a connection, the first in non-blocking mode.
func ringPollerWith(t *testing.T, mayBlock bool) (p *Poller, ours, peer int) {
	t.Helper()
	runtime.LockOSThread() // the thread ends with the test
	r, err := ring.New(64)
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Enable(); err == nil {
		p, err = NewRingPoller(r, mayBlock)
	}
	if err != nil {
		r.Close()
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.SetNonblock(pair[0], true)
	t.Cleanup(func() {
		p.Close()
		_ = unix.Close(pair[0])
		_ = unix.Close(pair[1])
	})
	return p, pair[0], pair[1]
}
