package crowd

import (
	"errors"
	"fmt"
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

// TestClientsHaveNoKeepalive: it costs system calls, and each wait for a client has a limit anyway.
func TestClientsHaveNoKeepalive(t *testing.T) {
	l, err := Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	raw, err := near.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var on int
	if cannot := raw.Control(func(fd uintptr) { on, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE) }); cannot != nil || err != nil {
		t.Fatal(cannot, err)
	}
	if on != 0 {
		t.Error("keepalive is on")
	}
}

// TestASourceIsForgottenWithItsLastClient: a stranger has many addresses of IPv6.
func TestASourceIsForgottenWithItsLastClient(t *testing.T) {
	l := New(nil, 4)
	var last []*Client
	for i := range 100 {
		c := l.Admit(&caller{from: net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("2001:db8:0:%x::1", i))}})
		if n := len(l.sources); n > 4 {
			t.Fatalf("%d sources of 4 clients", n)
		}
		if i >= 96 {
			last = append(last, c)
		}
	}
	for _, c := range last {
		if c != nil {
			c.Close()
		}
	}
	if n := len(l.sources); n != l.clients.Len() {
		t.Errorf("%d sources of %d clients", n, l.clients.Len())
	}
}

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
