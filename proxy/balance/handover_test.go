package balance

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/handover"
	"kubeproxy/registry"
)

// clientsEach is how many clients one record names.
const clientsEach = 512

// exported returns what a balancer has learned.
func exported(lb *LoadBalancerRR) (rotations []handover.Rotation, clients []handover.Affinity) {
	for record := range lb.Export() {
		switch r := record.(type) {
		case *handover.Rotation:
			rotations = append(rotations, *r)
		case *handover.Affinities:
			clients = append(clients, r.Clients...)
		}
	}
	return rotations, clients
}

func TestASuccessorKnowsWhatTheBalancerHasLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := registry.PortKey{Name: registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}}
		addrs := func(ports ...uint16) map[registry.Name]*registry.Endpoints {
			var all []registry.Addr
			for _, port := range ports {
				all = append(all, registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), port)})
			}
			return map[registry.Name]*registry.Endpoints{key.Name: {Name: key.Name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(all...)}}}}
		}
		old, next := NewLoadBalancerRR(false), NewLoadBalancerRR(false)
		old.SetEndpoints(addrs(1, 2, 3, 4))
		next.SetEndpoints(addrs(1, 2, 3, 4))
		r := old.Hold(key)
		for i := range 2 * clientsEach {
			client := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
			choice := r.ChooseFor(registry.UDP, client, &registry.Terms{AffinityTimeout: time.Hour}, nil)
			choice.Next()
			time.Sleep(time.Second)
		}
		endpoints := r.Endpoints()
		endpoints[1].Failed(registry.TCP)
		time.Sleep(health.FirstDown)
		endpoints[1].Failed(registry.TCP)
		unusable := r.ChooseAfter(endpoints[2], registry.UDP, netip.Addr{}, &registry.Terms{}, nil)
		unusable.Unusable(endpoints[2])
		endpoints[3].Failed(registry.UDP)
		time.Sleep(2 * health.FirstDown)
		r.Choose(registry.TCP)

		for record := range old.Export() {
			switch r := record.(type) {
			case *handover.Rotation:
				next.Adopt(r)
			case *handover.Affinities:
				next.AdoptAffinities(r)
			}
		}
		wantRotations, wantClients := exported(old)
		gotRotations, gotClients := exported(next)
		if diff := cmp.Diff(wantRotations, gotRotations, cmp.Comparer(func(a, b registry.Addr) bool { return a == b })); diff != "" {
			t.Errorf("rotations (-old +new):\n%s", diff)
		}
		if len(wantRotations) != 1 || len(wantRotations[0].Endpoints) != 3 || len(wantClients) != 2*clientsEach {
			t.Errorf("%+v and %d clients: that is not what was learned", wantRotations, len(wantClients))
		}
		if diff := cmp.Diff(wantClients, gotClients, cmp.Comparer(func(a, b registry.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("clients (-old +new):\n%s", diff)
		}

		other := NewLoadBalancerRR(false)
		other.SetEndpoints(addrs(4, 3)) // of two endpoints that have gone it was the turn of one
		for _, turn := range [...]struct{ next, want int }{{0, 3}, {1, 3}, {2, 3}, {3, 4}} {
			record := handover.Rotation{Service: key}
			for i := range 4 {
				record.Next = append(record.Next, endpoints[(turn.next+i)%4].Addr)
			}
			other.Adopt(&record)
			choice := other.Hold(key).Choose(registry.TCP)
			if e, _ := choice.Next(); int(e.Addr.IP.Port()) != turn.want {
				t.Errorf("when it was the turn of %v, %v is offered; want port %d", record.Next[0], e.Addr, turn.want)
			}
		}
	})
}
