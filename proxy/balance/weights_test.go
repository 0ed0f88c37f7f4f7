package balance

import (
	"fmt"
	"slices"
	"testing"

	"kubeproxy/registry"
)

// setWeights tells of a service whose endpoints are numbered from 1, and have these weights.
func setWeights(t *testing.T, lb *LoadBalancerRR, weights ...int) {
	t.Helper()
	byPort := []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs(numbers(len(weights))...)...)}}
	annotation := ""
	for i, a := range addrs(numbers(len(weights))...) {
		annotation += fmt.Sprintf(",%s=%d", a.IP.Addr(), weights[i])
	}
	parsed, err := registry.ParseWeights(annotation[1:])
	if err != nil {
		t.Fatal(err)
	}
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: {Name: web, ByPort: byPort, Weights: parsed}})
	lb.LetGo()
}

func TestClientsAreSpreadByWeight(t *testing.T) {
	const clients = 20_000
	for by := registry.RoundRobin; by <= registry.SourceAddress; by++ {
		lb := NewLoadBalancerRR(true)
		setWeights(t, lb, 1, 2, 0, 5, 2)
		of := share(chosenBy(t, lb.Hold(registry.PortKey{Name: web}), by, clients))
		tolerance := 0.25
		if by == registry.RoundRobin {
			tolerance = 0
		}
		for i, w := range []int{1, 2, 0, 5, 2} {
			if want := float64(w) / 10; of[i+1] < want*(1-tolerance)-1e-9 || of[i+1] > want*(1+tolerance)+1e-9 {
				t.Errorf("%v: endpoint %d has %.4f of the clients; want %.2f", by, i+1, of[i+1], want)
			}
		}
	}
}

// A weight counts for the load, too: an endpoint of weight 3 has three times the clients of one of weight 1 when both are busy.
func TestLeastConnectionsFillsEndpointsInProportionToTheirWeights(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setWeights(t, lb, 1, 3)
	r := lb.Hold(registry.PortKey{Name: web})
	for range 4000 { // who all stay
		c := r.ChooseFor(registry.TCP, person(1), &registry.Terms{Balance: registry.LeastConnections}, nil)
		e, _ := c.Next()
		e.Given()
	}
	if light := r.Endpoints()[0].known.Load().active.Load(); light < 950 || light > 1050 {
		t.Errorf("the endpoint of weight 1 has %d of 4000 clients; want about 1000", light)
	}
}

func TestTheStatusOfAnEndpointHasItsWeightBeforeAClientComesAndAfter(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	weights := func(when string, want ...int) {
		t.Helper()
		var got []int
		for _, s := range lb.Status() {
			got = append(got, s.Weight)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s the weights are %v; want %v", when, got, want)
		}
	}
	setWeights(t, lb, 1, 5, 0)
	weights("before a client comes", 1, 5, 0)
	c := lb.Hold(registry.PortKey{Name: web}).ChooseFor(registry.TCP, person(1), &registry.Terms{}, nil)
	c.Next()
	weights("after that", 1, 5, 0)
	setWeights(t, lb, 2, 1, 1)
	weights("after a change", 2, 1, 1)
}

func TestAnEndpointOfWeightZeroGetsNoNewClient(t *testing.T) {
	for by := registry.RoundRobin; by <= registry.SourceAddress; by++ {
		lb := NewLoadBalancerRR(false)
		setWeights(t, lb, 1, 1, 1)
		r := lb.Hold(registry.PortKey{Name: web})
		chosenBy(t, r, by, 30)
		kept := r.Endpoints()[1]
		setWeights(t, lb, 1, 0, 1)
		if r.Endpoints()[1] != kept || kept.Gone() {
			t.Errorf("%v: the endpoint is another, or gone: its connections would end", by)
		}
		if n := share(chosenBy(t, r, by, 300))[2]; n != 0 {
			t.Errorf("%v: it has %.2f of the clients", by, n)
		}
		for _, e := range r.Endpoints() { // also when the others fail
			if e != kept {
				e.Failed(registry.TCP)
			}
		}
		if n := share(chosenBy(t, r, by, 300))[2]; n != 0 {
			t.Errorf("%v: when the others fail it has %.2f of the clients", by, n)
		}
		setWeights(t, lb, 1, 1, 1)
		if n := share(chosenBy(t, r, by, 300))[2]; n == 0 {
			t.Errorf("%v: it has no client after its weight is back", by)
		}
	}
}

func TestAClientDoesNotReturnToAnEndpointOfWeightZero(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setWeights(t, lb, 1, 1)
	r := lb.Hold(registry.PortKey{Name: web})
	ask := func() *Endpoint {
		c := r.ChooseFor(registry.TCP, person(1), &registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: affinityTimeout}, nil)
		e, _ := c.Next()
		c.Reached(e)
		return e
	}
	had := ask()
	weights := []int{1, 1}
	weights[had.at.Load()] = 0
	setWeights(t, lb, weights...)
	if ask() == had {
		t.Error("it does")
	}
}

func TestAServiceWhoseEndpointsAllHaveWeightZeroOffersNone(t *testing.T) {
	for by := registry.RoundRobin; by <= registry.SourceAddress; by++ {
		lb := NewLoadBalancerRR(false)
		setWeights(t, lb, 0, 0)
		c := lb.Hold(registry.PortKey{Name: web}).ChooseFor(registry.TCP, person(1), &registry.Terms{Balance: by}, nil)
		if e, ok := c.Next(); ok {
			t.Errorf("%v: a client was offered %v", by, e.Addr)
		}
	}
}

func TestNoAlgorithmAllocatesWithWeights(t *testing.T) {
	for by := registry.RoundRobin; by <= registry.SourceAddress; by++ {
		lb := NewLoadBalancerRR(false)
		setWeights(t, lb, 1, 2, 3, 4, 5)
		r := lb.Hold(registry.PortKey{Name: web})
		terms, client := registry.Terms{Balance: by}, person(1)
		if n := testing.AllocsPerRun(1000, func() {
			c := r.ChooseFor(registry.TCP, client, &terms, nil)
			c.Next()
		}); n != 0 {
			t.Errorf("%v: %v allocations for each choice; want 0", by, n)
		}
	}
}

func BenchmarkWeights(b *testing.B) {
	for by := registry.RoundRobin; by <= registry.SourceAddress; by++ {
		for _, n := range []int{10, 1000} {
			b.Run(fmt.Sprintf("%v/endpoints=%d", by, n), func(b *testing.B) {
				lb := NewLoadBalancerRR(false)
				all := addrs(numbers(n)...)
				weights := registry.Weights(fmt.Sprintf("%s=3", all[0].IP.Addr()))
				lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: {Name: web, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(all...)}}, Weights: weights}})
				r := lb.Hold(registry.PortKey{Name: web})
				terms, client := registry.Terms{Balance: by}, person(1)
				b.ReportAllocs()
				for b.Loop() {
					c := r.ChooseFor(registry.TCP, client, &terms, nil)
					c.Next()
				}
			})
		}
	}
}

// Who gives clients to endpoints in place of the proxy does not know of weights.
func TestTheStandingOfAnEndpointTellsOfItsWeight(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setWeights(t, lb, 1, 0, 5)
	r := lb.Hold(registry.PortKey{Name: web})
	r.Endpoints() // which wakes them up
	var got []Standing
	for _, standing := range r.Standings(registry.TCP) {
		got = append(got, standing)
	}
	if want := []Standing{Unchecked, Weighted, Weighted}; !slices.Equal(got, want) {
		t.Errorf("the standings are %v; want %v", got, want)
	}
}
