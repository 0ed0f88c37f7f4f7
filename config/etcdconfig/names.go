package etcdconfig

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// lookupTimeout bounds one look-up of a name. A resolver whose first nameserver is dead takes 5 s to ask the second,
// which is longer than DialTimeout.
const lookupTimeout = 15 * time.Second

// Names resolves the host names of etcd's members. A look-up has lookupTimeout, however long the connection attempt
// that began it may wait; a later attempt uses the answer. Each attempt begins a look-up, and uses the last good
// answer while there is one. Any goroutine may use it.
type Names struct {
	lookup func(ctx context.Context, host string) ([]string, error)

	lookups sync.WaitGroup // under way

	mu    sync.Mutex // guards the fields below
	known map[string]*name
}

// A name is what is known of one host name.
type name struct {
	addrs  []string           // the last good answer; nil before the first
	err    error              // of the last look-up; nil if it was good
	done   chan struct{}      // closed when the look-up that is under way has ended; nil when there is none
	cancel context.CancelFunc // ends it
}

// NewNames returns a Names that asks lookup; nil is the system's resolver.
func NewNames(lookup func(ctx context.Context, host string) ([]string, error)) *Names {
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	return &Names{lookup: lookup, known: make(map[string]*name)}
}

// resolve returns the addresses of a host.
func (n *Names) resolve(ctx context.Context, host string) ([]string, error) {
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{host}, nil
	}
	n.mu.Lock()
	h := n.known[host]
	if h == nil {
		h = new(name)
		n.known[host] = h
	}
	if h.done == nil {
		n.beginLocked(host, h)
	}
	addrs, done := h.addrs, h.done
	n.mu.Unlock()
	if addrs != nil {
		return addrs, nil
	}
	select {
	case <-done:
	case <-ctx.Done():
		return nil, fmt.Errorf("look up %s: no answer yet; the look-up goes on for up to %v", host, lookupTimeout)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.addrs == nil {
		return nil, h.err
	}
	return h.addrs, nil
}

func (n *Names) beginLocked(host string, h *name) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	done := make(chan struct{})
	h.done, h.cancel = done, cancel
	n.lookups.Go(func() {
		defer cancel()
		addrs, err := n.lookup(ctx, host)
		n.mu.Lock()
		defer n.mu.Unlock()
		if h.err = err; err == nil && len(addrs) > 0 {
			h.addrs = addrs
		}
		h.done, h.cancel = nil, nil
		close(done)
	})
}

// Close ends the look-ups that are under way, and waits until they have.
func (n *Names) Close() {
	n.mu.Lock()
	for _, h := range n.known {
		if h.cancel != nil {
			h.cancel()
		}
	}
	n.mu.Unlock()
	n.lookups.Wait()
}

// Dial returns a connection to one address of a member, "host:port". All addresses of a name share the time that
// ctx has.
func (n *Names) Dial(ctx context.Context, member string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(member)
	if err != nil {
		return nil, err
	}
	addrs, err := n.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, addr := range addrs {
		var conn net.Conn
		if conn, err = dialOne(ctx, net.JoinHostPort(addr, port), len(addrs)-i); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// dialOne dials one of so many addresses that are left.
func dialOne(ctx context.Context, addr string, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	d := net.Dialer{Control: prepareDial}
	return d.DialContext(ctx, "tcp", addr)
}
