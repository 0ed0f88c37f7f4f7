package crowd

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// A failing listener has no memory for its first clients.
type failing struct {
	net.Listener
	failures int
}

func (l *failing) Accept() (net.Conn, error) {
	if l.failures--; l.failures >= 0 {
		return nil, unix.ENOMEM
	}
	if l.failures < -1 {
		return nil, net.ErrClosed
	}
	near, far := net.Pipe()
	far.Close()
	return near, nil
}

// TestAClientThatCannotBeAcceptedDoesNotEndTheListener: package http would end it.
func TestAClientThatCannotBeAcceptedDoesNotEndTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(&failing{failures: 3}, 2)
		conn, err := l.Accept()
		if err != nil {
			t.Fatalf("after three errors: %v", err)
		}
		conn.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is closed: %v", err)
		}
	})
}

// A caller is a connection from an address.
type caller struct {
	net.Conn
	from net.TCPAddr
}

func (c *caller) RemoteAddr() net.Addr { return &c.from }
func (c *caller) Close() error         { return nil }

// BenchmarkAdmit: of three sources that connect as fast as they can, each connection takes the room of another one.
func BenchmarkAdmit(b *testing.B) {
	l := New(nil, 256)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		l.Admit(&caller{from: net.TCPAddr{IP: net.IPv4(127, 0, 3, byte(i%3))}})
	}
}
