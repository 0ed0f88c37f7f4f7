package proxytest

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"kubeproxy/registry"
)

// Apart has the clients and endpoints of this process be on another machine than the node, as the kernel path needs it: see [Separate].
// An address of the loopback in a test then stands for one of that machine, or of the node.
type Apart struct {
	Within func(task func() error) error        // opens the sockets of clients and endpoints
	Node   func(loopback netip.Addr) netip.Addr // of the node, in place of one of the loopback
	Remote func(loopback netip.Addr) netip.Addr // of a client or an endpoint
	Left   func()                               // is called when an endpoint has stopped; it may wait

	mu      sync.Mutex // guards the field below
	answers map[registry.Protocol]map[netip.AddrPort]bool
}

// apart is nil where all are on the loopback of this machine.
var apart *Apart

// Separate puts clients and endpoints on another machine, for the rest of the process.
func Separate(a *Apart) {
	a.answers = map[registry.Protocol]map[netip.AddrPort]bool{registry.TCP: {}, registry.UDP: {}}
	apart = a
	Loopback = a.Node(Loopback)
}

// Answers reports whether an endpoint of this process is there.
func (a *Apart) Answers(protocol registry.Protocol, addr netip.AddrPort) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answers[protocol][addr]
}

// appears notes an endpoint.
func appears(protocol registry.Protocol, addr netip.AddrPort) {
	if apart != nil {
		apart.mu.Lock()
		defer apart.mu.Unlock()
		apart.answers[protocol][addr] = true
	}
}

// vanishes notes that an endpoint has gone.
func vanishes(t testing.TB, protocol registry.Protocol, addr netip.AddrPort) {
	if apart == nil {
		return
	}
	apart.mu.Lock()
	was := apart.answers[protocol][addr]
	delete(apart.answers[protocol], addr)
	apart.mu.Unlock()
	if was && t.Context().Err() == nil { // else the test is over
		apart.Left()
	}
}

// elsewhere runs a task that opens a socket of a client or an endpoint.
func elsewhere(task func() error) error {
	if apart == nil {
		return task()
	}
	return apart.Within(task)
}

// ofNode is the address at which clients find the node.
func ofNode(addr netip.AddrPort) netip.AddrPort {
	if apart != nil && addr.Addr().IsLoopback() {
		return netip.AddrPortFrom(apart.Node(addr.Addr()), addr.Port())
	}
	return addr
}

// ofRemote is the address of a client or an endpoint.
func ofRemote(addr netip.AddrPort) netip.AddrPort {
	if apart != nil && addr.Addr().IsLoopback() {
		return netip.AddrPortFrom(apart.Remote(addr.Addr()), addr.Port())
	}
	return addr
}

// staysApart skips a test that wants another network or process while clients and endpoints are on another machine.
func staysApart(t *testing.T) {
	t.Helper()
	if apart != nil {
		t.Skip("the test has a network or a process of its own")
	}
}

// listenTCP opens the socket of an endpoint.
func listenTCP(ctx context.Context, config net.ListenConfig, addr string) (l *net.TCPListener, err error) {
	err = elsewhere(func() error {
		opened, err := config.Listen(ctx, "tcp", ofRemote(netip.MustParseAddrPort(addr)).String())
		if err == nil {
			l = opened.(*net.TCPListener)
		}
		return err
	})
	return l, err
}
