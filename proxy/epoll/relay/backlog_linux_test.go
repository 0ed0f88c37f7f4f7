package relay

import (
	"io"
	"net"
	"testing"
	"time"

	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/reactor"
)

// However many connections were interrupted, a turn goes on with some of them, and with the others before those again.
func TestATurnGoesOnWithSomeOfThoseInterrupted(t *testing.T) {
	b := &Backlog{Turn: &reactor.Turn{Clock: func() time.Duration { return 0 }}}
	r := &Relays{Backlog: b}
	const room = backlogATurn
	conns := make([]Conn, 3*room)
	for i := range conns { // they are not live, so going on does nothing
		b.interrupt(&conns[i])
	}
	for turn := 1; turn <= 3; turn++ {
		r.Proceed()
		b.interrupt(&conns[turn-1])
		for i := range conns {
			if went := i < turn*room; !went && !conns[i].queued {
				t.Fatalf("after %d turns connection %d has gone on", turn, i)
			}
		}
		if want := len(conns) - turn*room + turn; len(b.unfinished) != want {
			t.Fatalf("after %d turns %d are left; want %d", turn, len(b.unfinished), want)
		}
	}
	for i, c := range b.unfinished {
		if c != &conns[i] {
			t.Errorf("the one interrupted as number %d is not in its place", i)
		}
	}
}

// Once a turn has used up its time, the minimum of them goes on, and the others keep their order.
func TestALateTurnGoesOnWithTheMinimum(t *testing.T) {
	b := &Backlog{Turn: &reactor.Turn{Clock: func() time.Duration { return reactor.TurnTime }}}
	r := &Relays{Backlog: b}
	conns := make([]Conn, 4*reactor.LeastATurn)
	for i := range conns {
		b.interrupt(&conns[i])
	}
	r.Proceed()
	if went := len(conns) - b.Waiting(); went != reactor.LeastATurn || b.unfinished[0] != &conns[reactor.LeastATurn] {
		t.Errorf("a late turn went on with %d connections; want the first %d", went, reactor.LeastATurn)
	}
}

// What the kernel has told of a connection that was left for a later turn is not lost, though the kernel tells it once.
func TestWhatIsToldOfAConnectionThatIsPostponedIsNotLost(t *testing.T) {
	l := startLoop(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	client := l.dial(t, 16<<10)
	answered := func() {
		t.Helper()
		if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
			t.Error(err)
		}
	}
	_, err := client.Write([]byte("hello"))
	enginetest.Must(t, err)
	answered()
	l.requests.Call(func() {
		_, err = client.Write([]byte("again"))
		l.poller.Poll()
		for _, ev := range l.poller.Events() {
			if token := reactor.TokenOf(&ev); token.Kind == ClientSide {
				c := l.conns.At(token.Index, token.Generation)
				l.relays.Postpone(c, token.Kind, ev.Events)
				if c.Account.Sent != 5 || !c.client.readable || l.backlog.Waiting() != 1 {
					t.Errorf("%d bytes sent, readable %v, %d wait; want 5, true, 1", c.Account.Sent, c.client.readable, l.backlog.Waiting())
				}
			}
		}
	})
	enginetest.Must(t, err)
	answered()
}
