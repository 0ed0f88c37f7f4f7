package relay

import (
	"io"
	"net"
	"sync"
	"testing"
)

// What is held for a side moves with a connection, and so does a FIN that was passed on. It waits for what is under way in the ring.
func TestAConnectionMovesWithWhatIsHeldForIt(t *testing.T) {
	ends := make(chan struct{})
	end := sync.OnceFunc(func() { close(ends) })
	defer end()
	l := startLoop(t, func(conn *net.TCPConn) {
		_, _ = io.Copy(conn, conn)
		<-ends // or there is no connection any more that could move
	})
	to := l.beside(t)
	client := l.dial(t, 4096)
	used := func() (here, there int) {
		l.requests.Call(func() { here = l.conns.Used() })
		to.requests.Call(func() { there = to.conns.Used() })
		return
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	l.requests.Call(func() {
		for c := range l.conns.All {
			l.relays.BulkTo = []*Relays{&to.relays}
			c.client.held = l.relays.tail([]byte("the rest"))
			c.client.sending = true
			c.leaving = true
			if l.relays.leaves(c) {
				t.Error("it has moved while the ring sends something")
			}
		}
	})
	if here, there := used(); here != 1 || there != 0 {
		t.Errorf("before: %d here, %d there", here, there)
	}
	l.requests.Call(func() {
		for c := range l.conns.All {
			c.client.sending = false
			c.backend.ringing = asked
			if l.relays.leaves(c) {
				t.Error("it has moved while the ring receives something")
				return
			}
			c.backend.ringing = byCalls
			l.relays.BulkTo = nil
			if l.relays.leaves(c) || c.leaving {
				t.Error("it leaves a loop that ends what it carries")
			}
			l.relays.BulkTo = []*Relays{&to.relays}
			c.leaving = true
			if !l.relays.leaves(c) {
				t.Error("it has not moved although nothing is under way")
			}
		}
	})
	end()
	if said, err := io.ReadAll(client); string(said) != "the rest" || err != nil {
		t.Errorf("the client got %q, %v", said, err)
	}
	if here, _ := used(); here != 0 || l.conns.Assigned.Load() != 0 {
		t.Errorf("after: %d here, %d assigned", here, l.conns.Assigned.Load())
	}
}
