package conformancetest

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// What clients notice of the algorithm that their service wants.

// waits has clients ask, sixteen at a time, and returns how long the slowest hundredth of them took at least.
func waits(t *testing.T, n *node, by registry.Balance, clients int, endpointAddrs ...registry.Addr) (p99 time.Duration) {
	t.Helper()
	port := proxytest.FreePort(t)
	n.apply(func(b *registry.Batch) {
		service(by.String(), tcp(port))(b)
		b.Services[named(by.String())].Balance = by
	}, endpoints(by.String(), endpointAddrs...))
	took := make([]time.Duration, clients)
	var all sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(clients); i = next.Add(1) {
				began := time.Now()
				if answer, err := proxytest.AskTCP(proxytest.On(port)); answer != "web" || err != nil {
					t.Errorf("%v: client %d was answered %q, %v", by, i, answer, err)
				}
				took[i-1] = time.Since(began)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took[clients*99/100]
}

// One endpoint of ten is slow. In turn, each tenth client waits for it; by least connections those who come while it has one do not.
func (s suite) TestLeastConnectionsHalvesTheLongestWaitsBesideASlowEndpoint(t *testing.T) {
	n := newNode(t, s.config())
	var addrs []registry.Addr
	for i := range 10 {
		addrs = append(addrs, served(t, func(conn *net.TCPConn) {
			if i == 3 {
				time.Sleep(time.Second)
			}
			proxytest.Identify("web")(conn)
		}))
	}
	inTurn, least := waits(t, n, registry.RoundRobin, 100, addrs...), waits(t, n, registry.LeastConnections, 1000, addrs...)
	t.Logf("99th percentile: round robin %v, least connections %v", inTurn, least)
	if least > inTurn/2 {
		t.Errorf("99th percentile %v; want half of round robin's %v at most", least, inTurn)
	}
}
