package apitest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
)

// A Network is the way to a server, in memory: under package synctest it takes no time.
type Network struct {
	accept chan net.Conn
	closed chan struct{}

	mu      sync.Mutex // guards the fields below
	refused bool
	conns   map[net.Conn]struct{}
}

// Serve has a handler answer on a network of its own until the test ends.
func Serve(t testing.TB, h http.Handler) *Network {
	t.Helper()
	n := &Network{accept: make(chan net.Conn), closed: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	server := &http.Server{Handler: h}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(n) }) // ends when the server is closed
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return n
}

// Dial connects to the server, whatever the address.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	refused := n.refused
	n.mu.Unlock()
	if refused {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	select {
	case n.accept <- theirs:
	case <-n.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[theirs] = struct{}{}
	return ours, nil
}

// Refuse breaks every connection and refuses new ones, until [Network.Open].
func (n *Network) Refuse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = true
	for c := range n.conns {
		c.Close()
	}
	clear(n.conns)
}

// Break breaks every connection. New ones are accepted.
func (n *Network) Break() {
	n.Refuse()
	n.Open()
}

// Open accepts connections again.
func (n *Network) Open() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = false
}

// Accept implements [net.Listener].
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. It is called once, by the server.
func (n *Network) Close() error {
	close(n.closed)
	return nil
}

// Addr implements [net.Listener].
func (n *Network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
