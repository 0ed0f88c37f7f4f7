package rotation

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"kubeproxy/registry"
)

// setWeights makes the endpoints of a rotation those that are numbered from 1, and have these weights.
func setWeights(t *testing.T, r *Rotation, weights ...int) {
	t.Helper()
	all := addrs(numbers(len(weights))...)
	annotation := ""
	for i, a := range all {
		annotation += fmt.Sprintf(",%s=%d", a.IP.Addr(), weights[i])
	}
	parsed, err := registry.ParseWeights(annotation[1:])
	if err != nil {
		t.Fatal(err)
	}
	r.Replace(registry.PortAddrs{Addrs: registry.NewAddrs(all...)}, parsed)
}

// weighted makes a rotation of endpoints with weights.
func weighted(t *testing.T, weights ...int) *Rotation {
	t.Helper()
	r := numbered()
	setWeights(t, r, weights...)
	return r
}

func TestClientsAreSpreadByWeight(t *testing.T) {
	const clients = 20_000
	for _, by := range registry.Balances() {
		of := share(chosenBy(t, weighted(t, 1, 2, 0, 5, 2), by, clients))
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

// TestASmallShareHasItsTurnHoweverOftenTheEndpointsChange, and few clients come in between.
func TestASmallShareHasItsTurnHoweverOftenTheEndpointsChange(t *testing.T) {
	for _, first := range []bool{false, true} {
		weights, canary := []int{95, 5, 1}, 2
		if first {
			weights, canary = []int{5, 95, 1}, 1
		}
		r := weighted(t, weights...)
		got := 0
		for i := range 400 {
			r.Override(map[registry.Addr]int{addr(3): i % 2})
			for range 5 {
				if number(offered(r)) == canary {
					got++
				}
			}
		}
		if got < 60 || got > 140 { // four times the standard deviation
			t.Errorf("weights %v: endpoint %d was given %d of 2000 clients; want about 100", weights, canary, got)
		}
	}
}

func TestTheShareOfAnEjectedEndpointFallsOnTheOthersInTurn(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []int
		drained int // this one is overridden to 0; 0: none is
		want    map[int]int
	}{
		{name: "the heaviest is ejected", weights: []int{4, 1, 1}, want: map[int]int{2: 300, 3: 300}},
		{name: "all weigh the same", weights: []int{100, 100, 100}, want: map[int]int{2: 300, 3: 300}},
		{name: "all weigh 1", weights: []int{1, 1, 1}, want: map[int]int{2: 300, 3: 300}},
		{name: "another one is drained", weights: []int{1, 1, 1, 1}, drained: 2, want: map[int]int{3: 300, 4: 300}},
	} {
		synctest.Test(t, func(t *testing.T) { // or the ejection might end
			r := weighted(t, c.weights...)
			if c.drained > 0 {
				r.Override(map[registry.Addr]int{addr(c.drained): 0})
			}
			r.Endpoints()[0].Failed(registry.TCP)
			got := make(map[int]int)
			for range 600 {
				got[number(offered(r))]++
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("%s: 600 clients were given %v; want %v", c.name, got, c.want)
			}
		})
	}
}

// A weight counts for the load, too: an endpoint of weight 3 has three times the clients of one of weight 1 when both are busy.
func TestLeastConnectionsFillsEndpointsInProportionToTheirWeights(t *testing.T) {
	r := weighted(t, 1, 3)
	for range 4000 { // who all stay
		c := r.ChooseFor(registry.TCP, person(1), &registry.Terms{Balance: registry.LeastConnections}, nil)
		e, _ := c.Next()
		give(e)
	}
	if light := r.Endpoints()[0].known.Load().active(); light < 950 || light > 1050 {
		t.Errorf("the endpoint of weight 1 has %d of 4000 clients; want about 1000", light)
	}
}

func TestTheStatusOfAnEndpointHasItsWeightBeforeAClientComesAndAfter(t *testing.T) {
	r := weighted(t, 1, 5, 0)
	weights := func(when string, want ...int) {
		t.Helper()
		var got []int
		each, _, _ := r.EndpointStatus()
		for s := range each {
			got = append(got, s.Weight)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s the weights are %v; want %v", when, got, want)
		}
	}
	weights("before a client comes", 1, 5, 0)
	c := r.ChooseFor(registry.TCP, person(1), &registry.Terms{}, nil)
	c.Next()
	weights("after that", 1, 5, 0)
	setWeights(t, r, 2, 1, 1)
	weights("after a change", 2, 1, 1)
}

func TestAnEndpointOfWeightZeroGetsNoNewClient(t *testing.T) {
	for _, by := range registry.Balances() {
		r := weighted(t, 1, 1, 1)
		chosenBy(t, r, by, 30)
		kept := r.Endpoints()[1]
		setWeights(t, r, 1, 0, 1)
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
		setWeights(t, r, 1, 1, 1)
		if n := share(chosenBy(t, r, by, 300))[2]; n == 0 {
			t.Errorf("%v: it has no client after its weight is back", by)
		}
	}
}

func TestAClientDoesNotReturnToAnEndpointOfWeightZero(t *testing.T) {
	r := weighted(t, 1, 1)
	ask := func() *Endpoint {
		c := r.ChooseFor(registry.TCP, person(1), &registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: affinityTimeout}, nil)
		e, _ := c.Next()
		c.Reached(e)
		return e
	}
	had := ask()
	weights := []int{1, 1}
	weights[had.at[0].Load()] = 0
	setWeights(t, r, weights...)
	if ask() == had {
		t.Error("it does")
	}
}

func TestAServiceWhoseEndpointsAllHaveWeightZeroOffersNone(t *testing.T) {
	for _, by := range registry.Balances() {
		c := weighted(t, 0, 0).ChooseFor(registry.TCP, person(1), &registry.Terms{Balance: by}, nil)
		if e, ok := c.Next(); ok {
			t.Errorf("%v: a client was offered %v", by, e.Addr)
		}
	}
}

func TestNoAlgorithmAllocatesWithWeights(t *testing.T) {
	for _, by := range registry.Balances() {
		r := weighted(t, 1, 2, 3, 4, 5)
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
	for _, by := range registry.Balances() {
		for _, n := range []int{10, 1000} {
			b.Run(fmt.Sprintf("%v/endpoints=%d", by, n), func(b *testing.B) {
				r := numbered()
				all := addrs(numbers(n)...)
				weights := registry.Weights(fmt.Sprintf("%s=3", all[0].IP.Addr()))
				r.Replace(registry.PortAddrs{Addrs: registry.NewAddrs(all...)}, weights)
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
