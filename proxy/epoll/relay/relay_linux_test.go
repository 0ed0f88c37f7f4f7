package relay

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A socket may take a header in pieces, and together with what the client said.
func TestBytesOfAHeaderDoNotCountAsTheClients(t *testing.T) {
	const header, said = 28, 100
	for first := 1; first < header+said; first++ {
		tally := traffic.NewTally(registry.PortKey{}, registry.TCP)
		c := &Conn{Account: tcp.Connection{Claim: &engine.Claim{Tally: tally}}}
		c.backend.header = header
		r := new(Relays)
		r.count(c, &c.backend, first)
		if left := max(0, header-first); int(c.backend.header) != left {
			t.Fatalf("after %d bytes, %d of the header are left; want %d", first, c.backend.header, left)
		}
		r.count(c, &c.backend, header+said-first)
		if c.Account.Sent != said || tally.Sent.Load() != said {
			t.Fatalf("in pieces of %d and the rest: %d and %d bytes were sent; want %d", first, c.Account.Sent, tally.Sent.Load(), said)
		}
	}
}

// Little that is left in a pipe when its side stalls is held in memory, and arrives in its place.
func TestWhatIsLeftInAPipeIsReadBack(t *testing.T) {
	r := &Relays{Pipes: Pipes{Budget: admit.NewBudget(1000)}}
	p := r.Pipes.Take()
	defer r.Pipes.Close()
	want := bytes.Repeat([]byte("abcdefgh"), 500)
	n, errno := socket.Write(p.W, want)
	if n != len(want) || errno != 0 {
		t.Fatal(n, errno)
	}
	p.N = n
	s := new(side)
	r.hold(s, p)
	if _, lent := r.Pipes.Made(); s.held.pipe != nil || !bytes.Equal(s.held.rest, want) || lent != 0 {
		t.Errorf("the side holds %+v, and %d pipes are lent", s, lent)
	}
}

// More than fits into a tail stays in its pipe, and is read only for a successor.
func TestMuchThatIsLeftInAPipeStaysThere(t *testing.T) {
	r := &Relays{Pipes: Pipes{Budget: admit.NewBudget(1000)}}
	p := r.Pipes.Take()
	defer r.Pipes.Close()
	want := bytes.Repeat([]byte("abcdefgh"), chunk/8+1)
	n, errno := socket.Write(p.W, want)
	if n != len(want) || errno != 0 {
		t.Fatal(n, errno)
	}
	p.N = n
	s := new(side)
	r.hold(s, p)
	if s.held.pipe != p || p.N != len(want) || len(s.held.rest) > 0 {
		t.Errorf("%d bytes are in the pipe, and %d in memory; want %d and 0", p.N, len(s.held.rest), len(want))
	}
	got, err := r.unsent(s)
	if _, lent := r.Pipes.Made(); err != nil || !bytes.Equal(got, want) || lent != 0 {
		t.Errorf("%d bytes unsent, %v, and %d pipes are lent; want %d, nil, 0", len(got), err, lent, len(want))
	}
}

// Readers that read nothing hold no pipes, so that bulk elsewhere goes on through these.
func TestStalledReadersHoldNoPipes(t *testing.T) {
	l := startLoop(t, func(conn *net.TCPConn) {
		for data := make([]byte, 1<<20); ; {
			if _, err := conn.Write(data); err != nil {
				return
			}
		}
	})
	const readers = mostPipes + 8
	for range readers {
		l.dial(t, 16<<10)
	}
	stalled := func() (n int) {
		l.requests.Call(func() {
			for c := range l.conns.All {
				if c.client.stalled() {
					n++
				}
			}
		})
		return n
	}
	proxytest.Eventually(t, func() bool { return stalled() == readers }, "every reader is stalled")
	l.requests.Call(func() {
		made, held := l.relays.Pipes.Made()
		if made == 0 {
			t.Error("nothing went through a pipe")
		}
		if held != 0 {
			t.Errorf("%d pipes are held by stalled readers", held)
		}
	})
}

// That the kernel lacks memory is no word of the peer: the connection goes on when there is some again.
func TestAConnectionOutlivesALackOfMemory(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS} {
		t.Run(errno.Error(), func(t *testing.T) {
			l := startLoop(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
			client := l.dial(t, 16<<10)
			say := func(what string) {
				t.Helper()
				_, err := client.Write([]byte(what))
				enginetest.Must(t, err)
				got := make([]byte, len(what))
				if _, err := io.ReadFull(client, got); err != nil || string(got) != what {
					t.Fatalf("%q, %v", got, err)
				}
			}
			say("hello")
			said := make(chan error)
			l.requests.Call(func() {
				for c := range l.conns.All {
					c.client.readable = true
					l.relays.readFailed(c, &c.backend, &c.client, errno) // as if a read had failed
					c.backend.held = l.relays.tail([]byte("held "))      // as send does when a write has
					l.backlog.starve(c)
				}
			})
			go func() {
				got := make([]byte, len("held "))
				_, err := io.ReadFull(client, got)
				if err == nil && string(got) != "held " {
					err = fmt.Errorf("got %q", got)
				}
				said <- err
			}()
			if err := proxytest.Receive(t, said, "what was held"); err != nil {
				t.Fatal(err)
			}
			say("still here")
		})
	}
}
