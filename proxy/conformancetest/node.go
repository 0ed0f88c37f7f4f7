package conformancetest

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A node is a running proxy. When the test ends, so does the node, and leaves nothing behind.
type node struct {
	*proxy.Proxier
	t        *testing.T
	balancer *balance.LoadBalancerRR
	stop     context.CancelFunc
	stopped  chan struct{} // closed when Run has returned
	err      error         // what Run returned
}

// wired, if set, has the kernel carry clients wherever it can: see [TestTheSuiteHoldsThroughTheKernel].
var wired interface {
	configure(*proxy.Config)
	starts(*node)                    // its Run has not begun
	complete(*node, *registry.Batch) // has all services checked
	settle(*node)                    // after the batch: waits until what the checks find is in force
}

// times is how often a test repeats what takes the kernel path a transaction of nftables each.
func times(n int) int {
	if wired != nil {
		return n / 20
	}
	return n
}

// newNode starts a proxy. Call it before anything else is opened, so that all is closed before the
// node is stopped and counted.
func newNode(t *testing.T, cfg proxy.Config) *node {
	t.Helper()
	proxytest.NothingLeaks(t)
	if wired != nil {
		wired.configure(&cfg)
	}
	balancer := balance.NewLoadBalancerRR(false)
	n := &node{
		Proxier:  proxy.NewProxier(cfg, balancer),
		t:        t,
		balancer: balancer,
		stopped:  make(chan struct{}),
	}
	if wired != nil {
		wired.starts(n)
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() {
		defer close(n.stopped)
		n.err = n.Run(ctx)
	}()
	t.Cleanup(n.end)
	return n
}

// end stops the node, waits for it, and looks whether all that was taken has been given back. It is safe twice.
func (n *node) end() {
	n.t.Helper()
	n.stop()
	proxytest.Receive(n.t, n.stopped, "Run to return")
	if n.err != nil {
		n.t.Errorf("Run returned %v", n.err)
	}
	for _, l := range n.Limits() {
		if l.Used != 0 {
			n.t.Errorf("when all is closed, %d of %d %s are used", l.Used, l.Max, l.Name)
		}
	}
	for _, s := range n.balancer.Status() {
		if s.Active != 0 {
			n.t.Errorf("when all is closed, endpoint %s of %s has %d that are active", s.Addr, s.Service, s.Active)
		}
	}
}

// A change is something to say in a batch.
type change func(*registry.Batch)

// tell gives the node one batch, and returns when it is in effect.
func (n *node) tell(changes ...change) {
	batch := registry.Batch{
		Oldest:    time.Now(),
		Services:  make(map[registry.Name]*registry.Service),
		Endpoints: make(map[registry.Name]*registry.Endpoints),
	}
	for _, change := range changes {
		change(&batch)
	}
	if wired != nil {
		wired.complete(n, &batch)
		defer wired.settle(n)
	}
	n.OnUpdate(batch)
}

// apply tells a batch after which every port must be open.
func (n *node) apply(changes ...change) {
	n.t.Helper()
	n.tell(changes...)
	for _, s := range n.Status() {
		if s.Err != nil {
			n.t.Fatalf("%s port %d of %s: %v", s.ID.Protocol, s.ID.Number, s.Owner, s.Err)
		}
	}
}

// service says that a service offers ports. All services were created at the same revision, but for
// those of [serviceSince].
func service(name string, ports ...registry.Port) change { return serviceSince(name, 1, ports...) }

// serviceSince says that a service was created at a revision, and offers ports.
func serviceSince(name string, created int64, ports ...registry.Port) change {
	return func(b *registry.Batch) {
		b.Services[named(name)] = &registry.Service{Name: named(name), Created: created, Ports: ports}
	}
}

// noService says that a service is gone.
func noService(name string) change {
	return func(b *registry.Batch) { b.Services[named(name)] = nil }
}

// endpoints says where the unnamed port of a service is answered; nowhere: its record is gone.
func endpoints(name string, addrs ...registry.Addr) change {
	return endpointsOf(name, "", addrs...)
}

// endpointsOf says where one port of a service is answered.
func endpointsOf(name, port string, addrs ...registry.Addr) change {
	return func(b *registry.Batch) {
		if len(addrs) == 0 {
			b.Endpoints[named(name)] = nil
			return
		}
		e := b.Endpoints[named(name)]
		if e == nil {
			e = &registry.Endpoints{Name: named(name)}
			b.Endpoints[named(name)] = e
		}
		e.ByPort = append(e.ByPort, registry.PortAddrs{Port: port, Addrs: registry.NewAddrs(addrs...)})
		slices.SortFunc(e.ByPort, func(a, b registry.PortAddrs) int { return strings.Compare(a.Port, b.Port) })
	}
}

func named(name string) registry.Name {
	return registry.Name{Namespace: registry.DefaultNamespace, Name: name}
}

func tcp(number uint16) registry.Port { return registry.Port{Protocol: registry.TCP, Number: number} }
func udp(number uint16) registry.Port { return registry.Port{Protocol: registry.UDP, Number: number} }

// host makes an endpoint's address of a host name.
func host(name string, port uint16) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.Addr{}, port), Host: name}
}

// served starts a TCP endpoint on 127.0.0.1.
func served(t *testing.T, handler func(*net.TCPConn)) registry.Addr {
	t.Helper()
	return proxytest.ServeTCP(t, "127.0.0.1:0", handler).Addr
}

// servedUDP starts a UDP endpoint on 127.0.0.1 that says who it is.
func servedUDP(t *testing.T, name string) registry.Addr {
	t.Helper()
	return proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP(name)).Addr
}

// tcpThrough starts a node with one service that has the given endpoints, and returns where its
// clients connect to.
func tcpThrough(t *testing.T, n *node, endpointAddrs ...registry.Addr) netip.AddrPort {
	t.Helper()
	port := proxytest.FreePort(t)
	n.apply(service("web", tcp(port)), endpoints("web", endpointAddrs...))
	return proxytest.On(port)
}

// udpThrough is [tcpThrough] for UDP.
func udpThrough(t *testing.T, n *node, endpointAddrs ...registry.Addr) netip.AddrPort {
	t.Helper()
	port := proxytest.FreePort(t)
	n.apply(service("dns", udp(port)), endpoints("dns", endpointAddrs...))
	return proxytest.On(port)
}

// totalsOf tells what the unnamed port of a service has carried, over all protocols.
func totalsOf(n *node, name string) (sum traffic.Totals) {
	for _, t := range n.Totals() {
		if t.Service.Name == named(name) {
			sum.Active += t.Active
			sum.Begun += t.Begun
			sum.Carried += t.Carried
			sum.Sent += t.Sent
			sum.Received += t.Received
			sum.DialFailures += t.DialFailures
			for r, ended := range t.Ended {
				sum.Ended[r] += ended
			}
			for r, dropped := range t.Dropped {
				sum.Dropped[r] += dropped
			}
		}
	}
	return sum
}

// ended collects what a node reports of clients that have ended.
type ended struct {
	mu  sync.Mutex
	all []traffic.Ending
}

func (e *ended) note(ending traffic.Ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ending)
}

// of returns the endings of one protocol, once there are n.
func (e *ended) of(t *testing.T, protocol registry.Protocol, n int) (some []traffic.Ending) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		some = nil
		for _, ending := range e.all {
			if ending.Listener.Protocol == protocol {
				some = append(some, ending)
			}
		}
		return len(some) >= n
	}, "clients to end")
	return some
}

// hammer has clients connect without a pause before, while and after something is done, and counts
// those that got no answer.
func hammer(t *testing.T, at netip.AddrPort, do func()) (refused int64) {
	t.Helper()
	var clients sync.WaitGroup
	var asked, failed atomic.Int64
	done := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			for !isClosed(done) {
				if answer, err := proxytest.AskTCP(at); answer == "" || err != nil {
					if failed.Add(1) == 1 {
						t.Logf("the first client without an answer: %q, %v", answer, err)
					}
				}
				asked.Add(1)
			}
		})
	}
	func() {
		defer clients.Wait()
		defer close(done)
		for _, step := range []func(){func() {}, do} {
			step()
			until := asked.Load() + 40
			proxytest.Eventually(t, func() bool { return asked.Load() >= until }, "more clients")
		}
	}()
	return failed.Load()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// talkTo says hello to a server that chats. One that refuses may do so before the client knows that
// it is connected.
func talkTo(t *testing.T, addr netip.AddrPort) (*proxytest.Talk, error) {
	t.Helper()
	talk, err := proxytest.TryTalkTo(t, addr)
	if err == nil {
		_, err = talk.Say("hello")
	}
	return talk, err
}
