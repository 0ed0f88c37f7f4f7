//go:build linux

package proxy

import (
	"context"
	"iter"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// BenchmarkTakeOver measures how much of a take-over clients can feel: from Freeze to Serve, without the way between two processes. One
// iteration hands all over to a new proxy: 1000 UDP sessions, and 4000 connections, or as many as there are descriptors for.
func BenchmarkTakeOver(b *testing.B) {
	const heldSessions = 1000
	heldConnections := min(4000, (sockopt.DescriptorLimit()-3*heldSessions-500)/6) // client, two of each proxy, endpoint
	echo := proxytest.ServeTCP(b, "127.0.0.1:0", func(conn *net.TCPConn) {
		for buf := make([]byte, 64); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			conn.Write(buf[:n])
		}
	})
	udpEcho := proxytest.ServeUDP(b, "127.0.0.1:0", proxytest.EchoUDP)
	tcpPort, udpPort := proxytest.FreePort(b), proxytest.FreePort(b)
	name := registry.Name{Namespace: registry.DefaultNamespace, Name: "held"}
	batch := registry.Batch{
		Services: map[registry.Name]*registry.Service{name: {Name: name, Created: 1, Ports: []registry.Port{
			{Name: "tcp", Protocol: registry.TCP, Number: tcpPort}, {Name: "udp", Protocol: registry.UDP, Number: udpPort},
		}}},
		Endpoints: map[registry.Name]*registry.Endpoints{name: {Name: name, ByPort: []registry.PortAddrs{
			{Port: "tcp", Addrs: registry.NewAddrs(echo.Addr)}, {Port: "udp", Addrs: registry.NewAddrs(udpEcho.Addr)},
		}}},
	}
	start := func() (p *Proxier, stop func()) {
		p = NewProxier(Config{Engine: Epoll, DrainTimeout: time.Millisecond, Config: engine.Config{
			BindAddress: proxytest.Loopback, MaxNewUDPSessions: 10 * heldSessions,
		}}, balance.NewLoadBalancerRR(false))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx)
		}()
		return p, func() { cancel(); <-done }
	}
	p, stop := start()
	defer func() { stop() }()
	p.OnUpdate(batch)
	var conns []net.Conn
	for range heldConnections {
		conns = append(conns, proxytest.Dial(b, proxytest.On(tcpPort)))
	}
	for range heldSessions {
		conns = append(conns, proxytest.DialUDP(b, proxytest.On(udpPort)))
	}
	ask := func() {
		for _, conn := range conns {
			conn.SetDeadline(time.Now().Add(proxytest.Patience))
			if _, err := conn.Write([]byte("ask")); err != nil {
				b.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 64)); err != nil {
				b.Fatal(err)
			}
		}
	}
	ask()
	var rest, adopt, worst time.Duration
	for b.Loop() {
		b.StopTimer()
		next, stopNext := start()
		items, err := p.Listeners()
		if err != nil {
			b.Fatal(err)
		}
		var own []takeover.Item
		for _, item := range items {
			own = append(own, duplicated(b, item))
		}
		if _, err := next.AdoptListeners(own); err != nil {
			b.Fatal(err)
		}
		next.OnUpdate(batch)
		for more := true; more; {
			if more, err = p.Lend(true, func(items []takeover.Item) error {
				return next.Borrow(func(yield func(takeover.Item, error) bool) {
					for _, item := range items {
						if !yield(duplicated(b, item), nil) {
							return
						}
					}
				})
			}); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		began := time.Now()
		live, err := p.Freeze(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		rested := time.Now()
		if err := next.Adopt(allDuplicated(b, live)); err != nil {
			b.Fatal(err)
		}
		next.Serve()
		served := time.Now()
		b.StopTimer()
		rest, adopt, worst = rest+rested.Sub(began), adopt+served.Sub(rested), max(worst, served.Sub(began))
		p.Release()
		stop()
		p, stop = next, stopNext
		ask()
		b.StartTimer()
	}
	perMilli := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(b.N) }
	b.ReportMetric(float64(heldConnections), "connections")
	b.ReportMetric(perMilli(rest), "rest-ms")
	b.ReportMetric(perMilli(adopt), "adopt-ms")
	b.ReportMetric(worst.Seconds()*1000, "worst-ms")
}

// duplicated returns an item with descriptors of its own, as another process gets it.
func duplicated(tb testing.TB, item takeover.Item) takeover.Item {
	for i, fd := range item.Descriptors {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			tb.Fatal(err)
		}
		item.Descriptors[i] = own
	}
	return item
}

func allDuplicated(tb testing.TB, items iter.Seq2[takeover.Item, error]) iter.Seq2[takeover.Item, error] {
	return func(yield func(takeover.Item, error) bool) {
		for item, err := range items {
			if !yield(duplicated(tb, item), err) {
				return
			}
		}
	}
}
