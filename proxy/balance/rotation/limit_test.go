package rotation

import (
	"context"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/balance/news"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// limited is the rotation of a service whose endpoints may have so many clients each.
func limited(most int, ns ...int) *Rotation {
	r := numbered(ns...)
	limit(r, registry.Terms{Limits: registry.Limits{PerEndpoint: most}})
	return r
}

func limit(r *Rotation, terms registry.Terms) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followLocked(&terms)
}

// comes has a client come, and returns its endpoint; nil: it was given none.
func comes(r *Rotation, client int) *Endpoint {
	c := r.ChooseFor(registry.TCP, person(client), r.terms.Load(), nil)
	for {
		e, ok := c.Next()
		if !ok {
			return nil
		}
		if e.BeginDial(math.MaxInt64) == nil {
			c.Reached(e)
			e.Given()
			return e
		}
		c.Withdraw(e)
	}
}

func TestAnEndpointThatIsFullIsGivenNoClient(t *testing.T) {
	for name, terms := range map[string]registry.Terms{
		"round robin":       {},
		"least connections": {Balance: registry.LeastConnections},
		"source address":    {Balance: registry.SourceAddress},
		"affinity":          {AffinityTimeout: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			r := numbered(1, 2, 3)
			terms.Limits.PerEndpoint = 2
			limit(r, terms)
			has := make(map[int]int)
			for range 6 { // one address, which affinity and source give one endpoint
				has[number(comes(r, 7))]++
			}
			if has[1] != 2 || has[2] != 2 || has[3] != 2 {
				t.Errorf("six clients have %v; want two each", has)
			}
			if e := comes(r, 7); e != nil {
				t.Errorf("the seventh has %d", number(e))
			}
			if why := r.WhyNone(registry.TCP, &terms); why != traffic.EndpointLimit {
				t.Errorf("it was given none for %v", why)
			}
			for _, i := range []int{2, 0, 1} {
				freed := r.Endpoints()[i]
				freed.Left(false)
				if e := comes(r, 7); e != freed {
					t.Errorf("a place of %d is free, and the client has %v", number(freed), e)
				}
				freed.Finished() // by the endpoint; the client does not end yet
				if e := comes(r, 7); e != freed {
					t.Errorf("%d has ended a connection, and the next client has %v", number(freed), e)
				}
				freed.Left(true)
				if e := comes(r, 7); e != nil {
					t.Errorf("a place was counted twice: %v", e)
				}
			}
		})
	}
}

func TestARotationOfFullEndpointsTurnsClientsAway(t *testing.T) {
	r := limited(1, 1, 2)
	first, second := comes(r, 1), comes(r, 2)
	if why, away := r.TurnsAway(registry.TCP, r.terms.Load()); !away || why != traffic.EndpointLimit {
		t.Errorf("both are full: %v, %t", why, away)
	}
	first.Left(false)
	if why, away := r.TurnsAway(registry.TCP, r.terms.Load()); away {
		t.Errorf("one has a place: %v", why)
	}
	comes(r, 3)
	second.Failed(registry.TCP)
	if why, away := r.TurnsAway(registry.TCP, r.terms.Load()); !away || why != traffic.EndpointLimit {
		t.Errorf("one is full, and the other fails: %v, %t", why, away)
	}
}

func TestClientsAreNotSentToEndpointsThatFailWhileOthersAreOnlyFull(t *testing.T) {
	r := limited(1, 1, 2)
	r.Endpoints()[0].Failed(registry.TCP)
	well := comes(r, 1)
	if number(well) != 2 {
		t.Fatalf("the client has %v", well)
	}
	c := r.ChooseFor(registry.TCP, person(2), r.terms.Load(), nil)
	if e, ok := c.Next(); ok || !c.MayWait() || c.WaitTime(time.Millisecond) != time.Millisecond {
		t.Errorf("the client has %v, and may wait: %t, %v", e, c.MayWait(), c.WaitTime(time.Millisecond))
	}
	well.Left(false)
	if e, ok := c.Next(); !ok || e != well {
		t.Errorf("the client has %v after it has waited", e)
	}
}

func TestNoBackupIsGivenAClientWhileAnotherEndpointWarmsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // at the beginning of the slow start all clients that have a choice are given another
		r := placed(0, registry.Backup)
		first := r.Endpoints()[0]
		for _, passes := range []bool{false, true} {
			first.stats().health[registry.TCP].Checked(passes, time.Minute)
		}
		for range 10 {
			if e := offered(r); e != first {
				t.Fatalf("a client is given %s, which stands by", e.Addr)
			}
		}
	})
}

func TestBackupsAreGivenClientsWhileAllOthersAreFull(t *testing.T) {
	r := placed(0, 0, registry.Backup)
	limit(r, registry.Terms{Limits: registry.Limits{PerEndpoint: 1}})
	first, second, third := comes(r, 1), comes(r, 2), comes(r, 3)
	if third != r.Endpoints()[2] || first.isBackup() || second.isBackup() {
		t.Errorf("the clients have %v, %v and %v", first, second, third)
	}
	first.Left(false)
	if e := comes(r, 4); e != first {
		t.Errorf("the next client has %v", e)
	}
}

func TestMorePlacesAreThereAsSoonAsTheRecordSaysSo(t *testing.T) {
	r := limited(1, 1)
	comes(r, 1)
	if e := comes(r, 2); e != nil {
		t.Fatalf("the second client has %v", e)
	}
	told := r.News()
	limit(r, registry.Terms{Limits: registry.Limits{PerEndpoint: 2}})
	if told.Err() == nil || comes(r, 2) == nil {
		t.Errorf("there are more places, and who waits was told: %v", told.Err())
	}
	if comes(r, 3) != nil {
		t.Error("there are still more")
	}
	limit(r, registry.Terms{})
	for i := range 10 {
		if comes(r, 4+i) == nil {
			t.Fatal("there is a limit still")
		}
	}
}

// TestTheOnlyFreePlaceIsFound, though all other endpoints are full, and cost nothing once that is known.
func TestTheOnlyFreePlaceIsFound(t *testing.T) {
	const many = 1000
	r := limited(1, numbers(many)...)
	for i := range many {
		if comes(r, i) == nil {
			t.Fatalf("client %d has no endpoint", i)
		}
	}
	if e := comes(r, many); e != nil {
		t.Fatalf("all are full, and the client has %v", e)
	}
	roster := r.Endpoints()[0].Rotation.awake().views[0].tiers[0].roster(registry.TCP)
	before := roster.looks
	for _, i := range []int{0, 500, 999, 70} {
		r.Endpoints()[i].Left(false)
		if e := comes(r, i); e != r.Endpoints()[i] {
			t.Errorf("the place of %d is free, and the client has %v", i, e)
		}
	}
	if looks := roster.looks - before; looks > 20 {
		t.Errorf("%d endpoints were looked at for four clients", looks)
	}
}

// TestNoEndpointHasMoreClientsThanAllowed, however many come and go at a time, also while the endpoints change; and no place is lost.
func TestNoEndpointHasMoreClientsThanAllowed(t *testing.T) {
	const endpoints, most, clients = 5, 3, 40
	r := limited(most, numbers(endpoints)...)
	var has [endpoints]atomic.Int64
	var over, served atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 500 {
				e := comes(r, i)
				if e == nil {
					continue
				}
				served.Add(1)
				if has[number(e)-1].Add(1) > most {
					over.Add(1)
				}
				finished := random.IntN(2) == 0
				has[number(e)-1].Add(-1)
				if finished {
					e.Finished()
				}
				e.Left(finished)
			}
		})
	}
	all.Go(func() {
		for i := range 50 { // their weights do
			setWeights(t, r, 1+i%2, 1, 1, 1, 1)
		}
	})
	all.Wait()
	if over.Load() > 0 || served.Load() == 0 {
		t.Errorf("of %d times an endpoint had more than %d clients %d times", served.Load(), most, over.Load())
	}
	for i := range endpoints * most {
		if comes(r, i) == nil {
			t.Fatalf("after all have gone, there are places for %d clients only", i)
		}
	}
	if e := comes(r, 0); e != nil {
		t.Errorf("one more has %v", e)
	}
}

// TestAPlaceThatBecomesFreeWhileAClientLooksIsNotLost: a client finds the endpoint full, and its place becomes free before the roster leaves it
// out. Endpoint.freed ran before the flag was set, and does nothing more.
func TestAPlaceThatBecomesFreeWhileAClientLooksIsNotLost(t *testing.T) {
	r := limited(1, 1)
	has := comes(r, 0)
	has.Left(false)
	roster := r.awake().views[0].tiers[0].roster(registry.TCP)
	roster.mu.Lock()
	roster.leaveOut(0, has)
	roster.mu.Unlock()
	if !r.awake().seenBy(0).hasReady(registry.TCP) {
		t.Error("the place is lost")
	}
}

// TestWhoFindsNoPlaceMayWait: also if a place becomes free between the look at the endpoints and the answer.
func TestWhoFindsNoPlaceMayWait(t *testing.T) {
	r := limited(1, 1)
	var frees sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	frees.Go(func() {
		for ctx.Err() == nil {
			if e := comes(r, 0); e != nil {
				e.Left(false)
			}
		}
	})
	for range 200_000 {
		c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
		if e, ok := c.Next(); !ok && c.WaitTime(1) != 1 {
			t.Errorf("a client was offered none, and may not wait")
			break
		} else if ok && e.BeginDial(1<<30) == nil {
			e.EndDial()
		}
	}
	stop()
	frees.Wait()
}

// The dials to an endpoint that is ejected take its places, too, and may end without a word on its health.
func TestWhoWaitsForAPlaceAtAnEjectedEndpointIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limited(1, 1)
		e := r.Endpoints()[0]
		e.Failed(registry.TCP)
		if comes := offered(r); comes != e || e.BeginDial(1) != nil {
			t.Fatalf("the only endpoint is ejected, and a client is offered %v", comes)
		}
		next := r.News()
		if other := offered(r); other != nil {
			t.Fatalf("its only place is taken, and a client is offered %v", other)
		}
		e.EndDial()
		time.Sleep(news.Delay)
		synctest.Wait()
		if next.Err() == nil {
			t.Error("who waits for the place is not told that it is free")
		}
		if other := offered(r); other != e {
			t.Errorf("the place is free, and a client is offered %v", other)
		}
	})
}

// offered returns what a client is offered first.
func offered(r *Rotation) *Endpoint {
	c := r.ChooseFor(registry.TCP, netip.Addr{}, r.terms.Load(), nil)
	e, _ := c.Next()
	return e
}

// TestWhoWaitsForAPlaceIsToldSoon: within a millisecond, and not once for each place of many that are freed at a time.
func TestWhoWaitsForAPlaceIsToldSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		r := limited(most, 1)
		for i := range most {
			comes(r, i)
		}
		told := 0
		ctx, stop := context.WithCancel(t.Context())
		var waiter sync.WaitGroup
		waiter.Go(func() {
			for ctx.Err() == nil {
				next := r.News()
				comes(r, most)
				select {
				case <-next.Done():
					told++
				case <-ctx.Done():
				}
			}
		})
		synctest.Wait()
		for range most {
			r.Endpoints()[0].Left(false)
		}
		time.Sleep(news.Delay)
		synctest.Wait()
		if told != 1 {
			t.Errorf("%d places were freed, and who waits was told %d times", most, told)
		}
		stop()
		waiter.Wait()
	})
}

func TestADrainedEndpointThatHasAPlaceAgainIsNotReady(t *testing.T) {
	for protocol := range registry.UDP + 1 {
		r := limited(1, 1, 2)
		drained, other := comes(r, 1), comes(r, 2)
		r.TurnsAway(protocol, r.terms.Load()) // as who comes now finds out
		r.Override(map[registry.Addr]int{drained.Addr: 0})
		drained.Left(false)
		if r.awake().seenBy(0).hasReady(protocol) {
			t.Errorf("%v: one endpoint is drained, the other is full, and one is ready", protocol)
		}
		other.stats().health[protocol].Checked(false, 0)
		other.follow(protocol)
		c := r.ChooseFor(protocol, netip.Addr{}, registry.NoTerms, nil)
		if c.Leaves(other) {
			t.Errorf("%v: clients leave an endpoint whose checks fail for one that is drained", protocol)
		}
		r.Override(nil)
		if !r.awake().seenBy(0).hasReady(protocol) {
			t.Errorf("%v: the endpoint is not drained any more, has a place, and is not ready", protocol)
		}
	}
}
