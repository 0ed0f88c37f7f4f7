package proxy

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/registry"
)

// BenchmarkClaims measures what an update costs that is as large as hostile records make it, or that comes when there is as much:
// per port that a service claims or gives up. The cost is linear where it does not grow with the number of ports.
func BenchmarkClaims(b *testing.B) {
	flag.Set("logtostderr", "false")
	flag.Set("alsologtostderr", "false")
	flag.Set("stderrthreshold", "FATAL")
	flag.Set("log_dir", b.TempDir())
	for _, n := range []int{5_500, 55_000} {
		ports := func(first, n int) (ids []registry.ListenerID) {
			for i := range n {
				ids = append(ids, registry.ListenerID{Protocol: registry.Protocol((first + i) >> 16), Number: uint16(first + i)})
			}
			return ids
		}
		for _, c := range []struct {
			name string
			cfg  func(*Proxier, *fakeEngine)
			on   []*registry.Service // and then they go again
		}{
			{"refused", func(p *Proxier, _ *fakeEngine) { p.cfg.AllowedPorts = []PortRange{{First: 1, Last: 1}} }, []*registry.Service{service("greedy", 1, ports(2, n)...)}},
			{"refused of many", func(p *Proxier, _ *fakeEngine) { p.cfg.AllowedPorts = []PortRange{{First: 1, Last: 1}} }, many(n/50, func(i int) []registry.ListenerID { return ports(2+i*50, 50) })},
			{"unopened", func(_ *Proxier, e *fakeEngine) {
				for _, id := range ports(2, n) {
					e.refuse[id] = errors.New("cannot be opened")
				}
			}, many(n/50, func(i int) []registry.ListenerID { return ports(2+i*50, 50) })},
			{"without descriptors", func(p *Proxier, e *fakeEngine) {
				for _, id := range ports(2, n) {
					e.refuse[id] = admit.ErrNoDescriptors
				}
			}, many(n/50, func(i int) []registry.ListenerID { return ports(2+i*50, 50) })},
			{"one port", func(*Proxier, *fakeEngine) {}, many(n, func(int) []registry.ListenerID { return ports(80, 1) })},
			{"all with all", func(*Proxier, *fakeEngine) {}, many(n/250, func(int) []registry.ListenerID { return ports(80, 250) })},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				p, e := newFakeProxier()
				c.cfg(p, e)
				var gone []*registry.Service
				for _, s := range c.on {
					gone = append(gone, &registry.Service{Name: s.Name})
				}
				apply(p, service("old", 1, enginetest.TCPPort(1)))
				for b.Loop() {
					apply(p, c.on...)
					changed := make([]*registry.Service, 0, len(c.on))
					for _, s := range c.on {
						again := *s
						again.Asked = &registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: 1}
						changed = append(changed, &again)
					}
					apply(p, changed...)
					apply(p, service("old", 0), service("other", 1, enginetest.TCPPort(1)))
					p.retry()
					p.PortCounts()
					p.Status()
					apply(p, service("other", 0), service("old", 1, enginetest.TCPPort(1)))
					apply(p, gone...)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/port")
			})
		}
	}
}

// BenchmarkOneChange measures what an update costs in which one service of ten thousand gets another port, and then its old one again: where all have ports of
// the node, and where each has an address of its own.
func BenchmarkOneChange(b *testing.B) {
	for name, at := range map[string]func(i, port int) registry.ListenerID{
		"of the node": func(i, port int) registry.ListenerID { return enginetest.TCPPort(uint16(port + i)) },
		"at addresses": func(i, port int) registry.ListenerID {
			return registry.ListenerID{Addr: netip.AddrFrom4([4]byte{127, 77, byte(i >> 8), byte(i)}), Number: uint16(port)}
		},
	} {
		b.Run(name, func(b *testing.B) {
			p, _ := newFakeProxier()
			apply(p, many(10_000, func(i int) []registry.ListenerID { return []registry.ListenerID{at(i, 5432)} })...)
			const one = 5000
			versions := [2]*registry.Service{}
			for v := range versions {
				versions[v] = many(one+1, func(i int) []registry.ListenerID { return []registry.ListenerID{at(i, 5432+v*20_000)} })[one]
			}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				apply(p, versions[i%2])
			}
		})
	}
}

func many(n int, ports func(i int) []registry.ListenerID) (services []*registry.Service) {
	for i := range n {
		services = append(services, service(fmt.Sprint("service-", i), int64(2+i), ports(i)...))
	}
	return services
}
