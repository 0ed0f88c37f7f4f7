package balance

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/registry"
)

var web = registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}

// addr is a made-up endpoint that differs from the others by n.
func addr(n int) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 80)}
}

func addrs(ns ...int) []registry.Addr {
	var list []registry.Addr
	for _, n := range ns {
		list = append(list, addr(n))
	}
	return list
}

// setEndpoints tells lb the endpoints of the unnamed port of a service; none at all: the record is gone.
func setEndpoints(lb *LoadBalancerRR, name registry.Name, ns ...int) {
	var endpoints *registry.Endpoints
	if len(ns) > 0 {
		endpoints = &registry.Endpoints{Name: name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs(ns...)...)}}}
	}
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{name: endpoints})
	lb.LetGo()
}

// chosen gives the numbers of the endpoints that n clients in a row are given.
func chosen(t *testing.T, r *rotation.Rotation, n int) []int {
	t.Helper()
	var got []int
	for range n {
		c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
		e, ok := c.Next()
		if !ok {
			t.Fatal("no endpoint")
		}
		got = append(got, number(e))
	}
	return got
}

func number(e *rotation.Endpoint) int {
	ip := e.Addr.IP.Addr().As4()
	return int(ip[2])<<8 | int(ip[3])
}

func TestTwoServicesRotateIndependently(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	db := registry.Name{Namespace: "prod", Name: "db"}
	setEndpoints(lb, web, 1, 2, 3)
	setEndpoints(lb, db, 4, 5)
	r, s := lb.Hold(registry.PortKey{Name: web}), lb.Hold(registry.PortKey{Name: db})
	chosen(t, r, 1)
	chosen(t, s, 1)
	setEndpoints(lb, db) // gone
	if c := s.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil); !isExhausted(&c) {
		t.Error("a service without endpoints still offers one")
	}
	if got, want := chosen(t, r, 2), []int{2, 3}; !slices.Equal(got, want) {
		t.Errorf("the other service went on with %v; want %v", got, want)
	}
}

func TestPortsOfOneServiceRotateIndependently(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	tell := func(byPort ...registry.PortAddrs) {
		lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: {Name: web, ByPort: byPort}})
		lb.LetGo()
	}
	tell(registry.PortAddrs{Port: "http", Addrs: registry.NewAddrs(addrs(1, 2)...)}, registry.PortAddrs{Port: "https", Addrs: registry.NewAddrs(addrs(3, 4)...)})
	plain, secure := lb.Hold(registry.PortKey{Name: web, Port: "http"}), lb.Hold(registry.PortKey{Name: web, Port: "https"})
	chosen(t, plain, 1)
	tell(registry.PortAddrs{Port: "https", Addrs: registry.NewAddrs(addrs(3, 4)...)})
	if c := plain.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil); !isExhausted(&c) {
		t.Error("a port without endpoints still offers one")
	}
	if got, want := chosen(t, secure, 2), []int{3, 4}; !slices.Equal(got, want) {
		t.Errorf("the other port gave %v; want %v", got, want)
	}
}

func TestWhatGoesGoesLast(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1)
	r := lb.Hold(registry.PortKey{Name: web})
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: nil})
	if got, want := chosen(t, r, 1), []int{1}; !slices.Equal(got, want) {
		t.Errorf("until the proxier has applied the batch: got %v; want %v", got, want)
	}
	lb.LetGo()
	if n := len(r.Endpoints()); n != 0 {
		t.Errorf("after that %d endpoints are left; want 0", n)
	}
}

func TestARotationIsForgottenWhenNobodyNeedsIt(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1)
	r := lb.Hold(registry.PortKey{Name: web})
	setEndpoints(lb, web)
	if lb.Hold(registry.PortKey{Name: web}) != r {
		t.Error("a rotation that is held was replaced")
	}
	lb.Release(r)
	lb.Release(r)
	if n := len(lb.services); n != 0 {
		t.Errorf("%d services are remembered; want 0", n)
	}
}

// Whatever the order in which a service's ports come and go, each is found, and only those without holders are forgotten.
func TestOneOfSeveralPortsIsForgottenAlone(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	held := make(map[string]*rotation.Rotation)
	for _, port := range []string{"m", "z", "a", "", "q"} {
		held[port] = lb.Hold(registry.PortKey{Name: web, Port: port})
	}
	for _, port := range []string{"q", "", "m"} {
		lb.Release(held[port])
		delete(held, port)
		if len(lb.services[web]) != len(held) {
			t.Fatalf("%d rotations are left; want %d", len(lb.services[web]), len(held))
		}
		for port, r := range held {
			if again := lb.Hold(registry.PortKey{Name: web, Port: port}); again != r {
				t.Errorf("port %q has another rotation than before", port)
			}
			lb.Release(r)
		}
	}
}

// isExhausted reports whether a choice offers nothing.
func isExhausted(c *rotation.Choice) bool {
	_, ok := c.Next()
	return !ok
}

// TestTheStatusOfManyEndpointsIsShortenedOnRequest: a record may list tens of thousands.
func TestTheStatusOfManyEndpointsIsShortenedOnRequest(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	ns := make([]int, 200)
	for i := range ns {
		ns[i] = i
	}
	setEndpoints(lb, web, ns...)
	first, n, next := lb.EndpointsOf(registry.PortKey{Name: web}, 10)
	if len(first) != 10 || n != 200 || next < 0 || next >= n || first[3].Addr != addr(3) {
		t.Errorf("of 200 endpoints %d are shown, of %d, next %d: %v", len(first), n, next, first)
	}
	if s := slices.Collect(lb.RotationStatus()); len(s) != 1 || s[0].Endpoints != 200 || s[0].Failing != 0 {
		t.Errorf("the status of 200 endpoints that no client has come to is %v", s)
	}
	if first, n, _ := lb.EndpointsOf(registry.PortKey{}, 10); len(first) != 0 || n != 0 {
		t.Errorf("a port without rotation has %d endpoints, %d shown", n, len(first))
	}
}

// Between the two, the service has lost its port, and the client has not been told of that.
func TestAClientThatBeginsToWaitWhileItsServiceLeavesIsTold(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	r := lb.Hold(registry.PortKey{Name: web})
	lb.Release(r)
	next := r.News()
	lb.LetGo()
	if next.Err() == nil {
		t.Error("a client that began to wait between Release and LetGo is not told")
	}
}

// BenchmarkLetGo measures what a record of endpoints costs that comes and goes, for each of its ports. The cost is linear where it does not grow
// with their number.
func BenchmarkLetGo(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 30_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			lb := NewLoadBalancerRR(false)
			e := &registry.Endpoints{Name: web}
			for i := range n {
				e.ByPort = append(e.ByPort, registry.PortAddrs{Port: fmt.Sprintf("p%05d", i), Addrs: registry.NewAddrs(addr(1))})
			}
			for b.Loop() {
				for _, record := range []*registry.Endpoints{e, nil} {
					lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: record})
					lb.LetGo()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/port")
		})
	}
}
