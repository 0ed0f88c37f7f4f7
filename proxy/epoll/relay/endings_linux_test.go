package relay

import (
	"net"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/tcp"
)

// An endpoint may vanish while something of it is still held for a slow client. The client gets that, and then a
// reset: what was cut off never looks complete.
func TestWhatIsHeldForAClientArrivesBeforeTheResetWhenItsEndpointVanishes(t *testing.T) {
	l := startLoop(t, func(conn *net.TCPConn) {
		for chunk := make([]byte, 10<<10); ; {
			if _, err := conn.Write(chunk); err != nil {
				return
			}
		}
	})
	client := l.dial(t, 8<<10)
	var want uint64
	proxytest.Eventually(t, func() bool {
		l.requests.Call(func() {
			for c := range l.conns.All {
				if s := &c.client; s.stalled() {
					want = c.Account.Received
					if t := s.held; t != nil {
						want += uint64(len(t.rest))
						if t.pipe != nil {
							want += uint64(t.pipe.N)
						}
					}
					l.relays.ended(c, s, &c.backend, tcp.ErrVanished) // as lookAt does
				}
			}
		})
		return want > 0
	}, "the client's side stalls")
	got, buf := uint64(0), make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if got += uint64(n); err == nil {
			continue
		}
		if got != want || !proxytest.IsReset(err) {
			t.Errorf("the client got %d bytes of %d, and then %v; want a reset", got, want, err)
		}
		return
	}
}
