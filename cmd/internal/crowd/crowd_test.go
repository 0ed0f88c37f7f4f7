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
