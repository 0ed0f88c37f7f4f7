package relay

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/socket"
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
					l.relays.ended(c, s, &c.backend, tcp.ErrVanished) // as vanished does when it is to say no more
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

// Nor is lost what the endpoint had said and was not read from its socket yet, since the client reads slowly.
func TestWhatIsNotReadYetOfAnEndpointThatVanishesArrivesBeforeTheReset(t *testing.T) {
	const size = 1 << 20
	l := startLoop(t, func(conn *net.TCPConn) {
		_, _ = io.ReadFull(conn, make([]byte, 1))
		_, _ = conn.Write(make([]byte, size))
		_ = proxytest.Discard(conn)
	})
	client := l.dial(t, 8<<10)
	its := func(do func(c *Conn)) {
		l.requests.Call(func() {
			for c := range l.conns.All { // it is one
				do(c)
			}
		})
	}
	proxytest.Eventually(t, func() (is bool) {
		its(func(c *Conn) {
			is = c.phase == Young
			_ = unix.SetsockoptInt(int(c.client.fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<10)
		})
		return is
	}, "the client has its endpoint")
	_, _ = client.Write([]byte("?"))
	proxytest.Eventually(t, func() (is bool) {
		its(func(c *Conn) { is = c.client.stalled() && socket.HasUnread(int(c.backend.fd)) })
		return is
	}, "the client's side stalls")
	look := func() (ends bool) { // as lookAt does
		its(func(c *Conn) { ends = l.relays.vanished(c, &c.client, &c.backend) })
		return ends
	}
	if look() {
		t.Fatal("what the endpoint said is left in its socket")
	}
	its(func(c *Conn) {
		if c.phase != finishing {
			t.Error("the silence of the connection has no limit")
		}
	})
	if n, err := io.ReadFull(client, make([]byte, size)); err != nil {
		t.Fatalf("the client got %d bytes of %d, and then %v", n, size, err)
	}
	proxytest.Eventually(t, look, "nothing more is to be read")
	if n, err := client.Read(make([]byte, 1)); !proxytest.IsReset(err) {
		t.Errorf("in the end the client got %d bytes, %v; want a reset", n, err)
	}
}
