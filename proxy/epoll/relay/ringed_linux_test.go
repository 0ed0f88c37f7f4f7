package relay

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// A receive may be under way for a side while the other one stalls. The end that it brings comes behind what is held: a FIN that overtook it
// would cut off the answer, and a reset that passed for a FIN would make a part look complete.
func TestAnEndThatTheRingBringsComesBehindWhatIsHeld(t *testing.T) {
	for _, way := range []struct {
		name  string
		errno unix.Errno
	}{{"FIN", 0}, {"reset", unix.ECONNRESET}} {
		t.Run(way.name, func(t *testing.T) {
			end := make(chan struct{})
			l := startLoop(t, func(conn *net.TCPConn) {
				<-end
				if way.errno != 0 {
					_ = conn.SetLinger(0)
				}
			})
			client := l.dial(t, 4096)
			the := func() (c *Conn) {
				for c = range l.conns.All {
				}
				return c
			}
			l.requests.Call(func() {
				c := the()
				l.poller.Unwatch(int(c.backend.fd)) // as if it were in a ring
				c.backend.ringing = asked
				c.client.held = l.relays.tail([]byte("the rest"))
			})
			close(end)
			l.requests.Call(func() {
				c := the()
				l.relays.forward(c, &c.client, &c.backend, 0, nil, way.errno)
				if c.live {
					l.relays.wantOut(c, &c.client)
				}
			})
			said, err := io.ReadAll(client)
			if string(said) != "the rest" || (err != nil) != (way.errno != 0) {
				t.Errorf("the client got %q, %v", said, err)
			}
		})
	}
}
