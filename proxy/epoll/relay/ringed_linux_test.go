package relay

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/ring"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
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
			l.requests.Call(func() {
				c := l.only()
				l.poller.Unwatch(int(c.backend.fd)) // as if it were in a ring
				c.backend.ringing = asked
				c.client.held = l.relays.tail([]byte("the rest"))
			})
			close(end)
			l.requests.Call(func() {
				c := l.only()
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

// Completions come 64 a turn, so that of a send may wait behind others while dst, which had no room for all of it, gets some. Epoll tells that
// once: before there is anything held for dst.
func TestASideThatGotRoomBeforeItsCompletionGetsTheRest(t *testing.T) {
	end := make(chan struct{})
	l := startLoop(t, func(*net.TCPConn) { <-end })
	client := l.dial(t, 4096)
	filled := 0
	l.requests.Call(func() {
		c := l.only()
		for block := make([]byte, 16<<10); ; {
			n, errno := socket.Send(int(c.client.fd), block)
			if errno != 0 {
				break
			}
			filled += n
		}
		l.relays.wantOut(c, &c.client) // as after a send that found no room before
		c.client.sending = true
	})
	if _, err := io.CopyN(io.Discard, client, int64(filled)); err != nil {
		t.Fatal(err)
	}
	for hasRoom := false; !hasRoom; { // and the loop has been told in the turn of this call, or of the next
		l.requests.Call(func() { hasRoom = socket.SendRoom(int(l.only().client.fd)) >= 16<<10 })
	}
	l.requests.Call(func() {})
	l.requests.Call(func() {
		c := l.only()
		l.relays.hasSent(c, &c.client, &c.backend, []byte("the rest"), 0, unix.EAGAIN)
	})
	close(end)
	_ = client.SetReadDeadline(time.Now().Add(proxytest.Patience))
	if said, err := io.ReadAll(client); string(said) != "the rest" || err != nil {
		t.Errorf("the client got %q, %v", said, err)
	}
}

// A receive that finds no buffer waits for the send before it: Linux 6.1 may tell of it first.
func TestAReceiveThatFoundNoBufferBeginsAnewBehindTheSend(t *testing.T) {
	l := startLoop(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	l.dial(t, 4096)
	l.requests.Call(func() {
		c := l.only()
		c.client.sending = true
		l.relays.forward(c, &c.client, &c.backend, 0, nil, unix.ENOBUFS)
		l.relays.hasSent(c, &c.client, &c.backend, []byte("all"), 3, 0)
		if c.backend.ringing != toAsk || !c.queued {
			t.Error("the receive does not begin again")
		}
		c.backend.ringing = byCalls
	})
}

// While a loop rests, another thread acts for it, of which a ring takes nothing.
func TestAConnectionThatEndsWhileTheLoopRestsAsksNothingOfTheRing(t *testing.T) {
	l := startLoop(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	client := l.dial(t, 4096)
	l.requests.Call(func() {
		l.relays.Buffers, l.requests.AtRest = new(ring.Buffers), true // of a ring that there is not
		l.relays.End(l.only(), traffic.Shutdown)
		l.relays.Buffers, l.requests.AtRest = nil, false
	})
	if _, err := io.ReadAll(client); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client got %v; want a reset", err)
	}
}
