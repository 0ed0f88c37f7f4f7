package conformancetest

import (
	"io"
	"net"
	"net/netip"
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
func waits(t *testing.T, at netip.AddrPort, clients int) (p99 time.Duration) {
	took := make([]time.Duration, clients)
	var all sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(clients); i = next.Add(1) {
				began := time.Now()
				if answer, err := proxytest.AskTCP(at); answer != "web" || err != nil {
					t.Errorf("client %d of %v was answered %q, %v", i, at, answer, err)
				}
				took[i-1] = time.Since(began)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took[clients*99/100]
}

// One endpoint of ten is slow. In turn, each tenth client waits for it; by least connections it has as many clients at a time as the others,
// and so gets few. It is so slow that these are less than a hundredth; on a very busy machine not always, but in one of three tries.
func (s suite) TestLeastConnectionsHalvesTheLongestWaitsBesideASlowEndpoint(t *testing.T) {
	n := newNode(t, s.config())
	var addrs []registry.Addr
	for i := range 10 {
		addrs = append(addrs, served(t, func(conn *net.TCPConn) {
			if i == 3 {
				time.Sleep(2500 * time.Millisecond)
			}
			proxytest.Identify("web")(conn)
		}))
	}
	first, second := proxytest.FreePort(t), proxytest.FreePort(t)
	n.apply(service("a", tcp(first)), endpoints("a", addrs...), endpoints("b", addrs...), func(b *registry.Batch) {
		service("b", tcp(second))(b)
		b.Services[named("b")].Asked = &registry.Terms{Balance: registry.LeastConnections}
	})
	for range 3 {
		var inTurn, least time.Duration
		var both sync.WaitGroup
		both.Go(func() { inTurn = waits(t, proxytest.On(first), 40) })
		both.Go(func() { least = waits(t, proxytest.On(second), 1000) })
		both.Wait()
		t.Logf("99th percentile: round robin %v, least connections %v", inTurn, least)
		if least <= inTurn/2 {
			return
		}
	}
	t.Error("the 99th percentile is never half of round robin's or less")
}

// An endpoint that has ended a connection has no work with it, although the client still keeps it open.
func (s suite) TestAConnectionThatItsEndpointHasEndedIsNoLoad(t *testing.T) {
	n := newNode(t, s.config())
	ends := served(t, proxytest.Identify("ends"))
	stays := served(t, func(conn *net.TCPConn) {
		if _, err := conn.Write([]byte("stays")); err == nil {
			proxytest.Discard(conn)
		}
	})
	port := proxytest.FreePort(t)
	n.apply(endpoints("web", ends, stays), func(b *registry.Batch) {
		service("web", tcp(port))(b)
		b.Services[named("web")].Asked = &registry.Terms{Balance: registry.LeastConnections}
	})
	met := make(map[string]int)
	meet := func() string {
		t.Helper()
		client := proxytest.Dial(t, proxytest.On(port)) // and keeps it
		name := make([]byte, len("stays"))
		k, err := io.ReadFull(client, name)
		if err != nil && err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
		met[string(name[:k])]++
		return string(name[:k])
	}
	for met["stays"] == 0 {
		meet()
	}
	for range 20 {
		if got := meet(); got != "ends" {
			t.Fatalf("a client was given %q; the endpoint that has ended all its connections has fewer: %v", got, met)
		}
	}
}
