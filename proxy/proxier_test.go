package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A fakeEngine keeps a record of what it is told instead of opening sockets.
type fakeEngine struct {
	engine.Handover // nothing is handed over

	mu        sync.Mutex // guards the fields below
	open      map[registry.ListenerID]*fakeSocket
	opened    int
	refuse    map[registry.ListenerID]error // ports that cannot be opened now
	unready   map[registry.ListenerID]error // ports whose clients cannot be served
	handovers int                           // of ports between owners

	listening  func(registry.ListenerID, *atomic.Pointer[engine.Claim]) // called for each port that opens; may be nil
	handedOver func()                                                   // called for each handover; may be nil
}

type fakeSocket struct {
	engine *fakeEngine
	id     registry.ListenerID
	owner  *atomic.Pointer[engine.Claim]
}

func (e *fakeEngine) Listen(id registry.ListenerID, owner *atomic.Pointer[engine.Claim], _ ...engine.Socket) (engine.Socket, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refuse[id]; err != nil {
		return nil, err
	}
	if e.open[id] != nil {
		return nil, fmt.Errorf("%s: address already in use", id)
	}
	s := &fakeSocket{e, id, owner}
	if e.listening != nil {
		e.listening(id, owner)
	}
	e.open[id] = s
	e.opened++
	return s, nil
}
func (e *fakeEngine) Drain(context.Context)   {}
func (e *fakeEngine) Limits() []traffic.Limit { return nil }
func (e *fakeEngine) Paused() uint64          { return 0 }
func (e *fakeEngine) Clients(int64, *traffic.Selection, func(*traffic.Client) bool) int64 {
	return -1
}

func (*fakeEngine) Leftover() map[registry.ListenerID]int { return nil }
func (*fakeEngine) Inherit(map[registry.ListenerID]int)   {}

func (s *fakeSocket) Ready() error {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	err := s.engine.unready[s.id]
	if err != nil {
		delete(s.engine.open, s.id)
	}
	return err
}

func (s *fakeSocket) OwnerChanged() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.handovers++
	if s.engine.handedOver != nil {
		s.engine.handedOver()
	}
}

func (*fakeEngine) Addresses() *admit.Resolver   { return nil }
func (*fakeEngine) Stalled() error               { return nil }
func (*fakeEngine) TurnTimes() traffic.TurnTimes { return traffic.TurnTimes{} }

func (*fakeSocket) Descriptor() (int, error) { return -1, nil }

func (s *fakeSocket) Drain() { s.Close() }

func (s *fakeSocket) Close() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	delete(s.engine.open, s.id)
}

// owner names the service that has a port, or none when it is not open.
func (e *fakeEngine) owner(id registry.ListenerID) (name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.open[id]; s != nil {
		name = s.owner.Load().Key.String()
	}
	return name
}

func newFakeProxier() (*Proxier, *fakeEngine) {
	e := &fakeEngine{open: make(map[registry.ListenerID]*fakeSocket), refuse: make(map[registry.ListenerID]error), unready: make(map[registry.ListenerID]error)}
	p := NewProxier(Config{Config: engine.Config{BindAddress: netip.MustParseAddr("127.0.0.1")}}, balance.NewLoadBalancerRR(false))
	p.engine = e
	return p, e
}

// service makes a service that claims the given ports.
func service(name string, created int64, ids ...registry.ListenerID) *registry.Service {
	s := &registry.Service{Name: registry.Name{Namespace: registry.DefaultNamespace, Name: name}, Created: created}
	for _, id := range ids {
		s.Ports = append(s.Ports, registry.Port{Protocol: id.Protocol, Number: id.Number})
	}
	return s
}

// apply tells p of services in one batch; a service without ports is told as gone.
func apply(p *Proxier, services ...*registry.Service) {
	batch := registry.Batch{Services: make(map[registry.Name]*registry.Service)}
	for _, s := range services {
		batch.Services[s.Name] = s
		if s.Ports == nil {
			batch.Services[s.Name] = nil
		}
	}
	p.OnUpdate(batch)
}

func wantOwners(t *testing.T, e *fakeEngine, want map[registry.ListenerID]string) {
	t.Helper()
	got := make(map[registry.ListenerID]string)
	e.mu.Lock()
	ids := slices.Collect(maps.Keys(e.open))
	e.mu.Unlock()
	for _, id := range ids {
		got[id] = e.owner(id)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(registry.ListenerID{})); diff != "" {
		t.Errorf("open ports and their owners (-want +got):\n%s", diff)
	}
}

func TestAServiceOpensItsPortsAndClosesThem(t *testing.T) {
	p, e := newFakeProxier()
	apply(p, service("web", 1, enginetest.TCPPort(80), enginetest.UDPPort(80)))
	wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(80): "web", enginetest.UDPPort(80): "web"})
	apply(p, service("web", 1, enginetest.TCPPort(81)))
	wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(81): "web"})
	apply(p, service("web", 0))
	wantOwners(t, e, map[registry.ListenerID]string{})
	if p.lb.Rotations() != 0 {
		t.Errorf("%d rotations are still held", p.lb.Rotations())
	}
	if got := p.Totals(); len(got) != 0 {
		t.Errorf("there are still totals: %+v", got)
	}
}

func TestAServiceThatMovesToAnotherPortKeepsItsTotals(t *testing.T) {
	p, _ := newFakeProxier()
	apply(p, service("web", 1, enginetest.TCPPort(80)))
	p.listeners[enginetest.TCPPort(80)].claims.first.Tally.Sent.Add(7)
	apply(p, service("web", 1, enginetest.TCPPort(81)))
	if got := p.Totals(); len(got) != 1 || got[0].Sent != 7 {
		t.Errorf("totals %+v; want the 7 bytes of before", got)
	}
}

// Of tens of thousands of claims on one port, all but one wait. Those are counted in nothing and choose nothing, until one has the port.
func TestAClaimThatWaitsHasNoTallyAndNoRotation(t *testing.T) {
	p, _ := newFakeProxier()
	port := enginetest.TCPPort(80)
	apply(p, service("first", 1, port), service("second", 2, port), service("third", 3, port))
	apply(p, service("third", 3, port, enginetest.TCPPort(81))) // of which it has the other
	if n := len(p.tallies.All); n != 2 {
		t.Errorf("%d tallies for two claims that have their port; want 2", n)
	}
	if n := p.lb.Rotations(); n != 2 {
		t.Errorf("%d rotations for two claims that have their port; want 2", n)
	}
	apply(p, service("second", 0))
	apply(p, service("first", 0))
	owner := p.listeners[port].claims.first
	if owner.Key.Name.Name != "third" || owner.Rotation == nil || owner.Tally == nil || owner.Lifetime == nil || owner.Lifetime.IsOver() {
		t.Errorf("the owner is %+v; want third, with a rotation, a tally and a lifetime", owner)
	}
	if n := len(p.Totals()); n != 1 {
		t.Errorf("totals of %d services; want those of third", n)
	}
}

// Endpoints that come while their service waits for its port, or when it has it, follow its terms like those that came before it.
func TestAServiceThatWaitedForItsPortServesItOnItsTerms(t *testing.T) {
	port := enginetest.TCPPort(80)
	heir := service("heir", 2, port)
	heir.SetTerms(registry.Terms{Limits: registry.Limits{PerEndpoint: 1}})
	come := func(p *Proxier) {
		list := &registry.Endpoints{Name: heir.Name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(enginetest.Addresses(1)...)}}}
		p.OnUpdate(registry.Batch{Endpoints: map[registry.Name]*registry.Endpoints{heir.Name: list}})
	}
	for at := range 4 {
		p, _ := newFakeProxier()
		steps := []*registry.Service{service("first", 1, port), heir, service("first", 0)}
		for _, s := range steps[:at] {
			apply(p, s)
		}
		come(p)
		for _, s := range steps[at:] {
			apply(p, s)
		}
		owner := p.listeners[port].claims.first
		e := owner.Rotation.Endpoints()[0]
		if owner.Key.Name != heir.Name || e.BeginDial(2) != nil || e.BeginDial(2) != rotation.ErrFull {
			t.Errorf("endpoints that come at step %d: %s has the port, and its endpoint takes another number of clients than one", at, owner.Key)
		}
	}
}

// A predecessor's connections may belong to a service that waits for the port in this process: they are counted all the same.
func TestAnAdoptedClientOfAClaimThatWaitsIsCounted(t *testing.T) {
	p, _ := newFakeProxier()
	port := enginetest.TCPPort(80)
	apply(p, service("first", 1, port), service("second", 2, port))
	waits := registry.PortKey{Name: registry.Name{Namespace: registry.DefaultNamespace, Name: "second"}}
	c := newAdoption(p).claim(claimKey{service: waits, id: port}, gone{})
	if c != p.listeners[port].claims.last || c.Tally == nil || c.Lifetime == nil || c.Lifetime.IsOver() {
		t.Fatalf("the client's claim is %+v; want the one that waits, with a tally and a lifetime", c)
	}
	if c.Rotation == nil || c.Rotation != p.lb.Hold(waits) {
		t.Error("the client's claim chooses from another rotation than its service has")
	}
	tally := c.Tally
	tally.Sent.Add(7)
	apply(p, service("first", 0))
	if owner := p.listeners[port].claims.first; owner != c || owner.Tally != tally {
		t.Error("the claim has another tally when it owns the port")
	}
}

// A service of a thousand ports asks for the same at each. Its claims keep nothing else of the record alive.
func TestClaimsOfAServiceShareItsTerms(t *testing.T) {
	p, _ := newFakeProxier()
	web := service("web", 1, enginetest.TCPPort(80), enginetest.TCPPort(81))
	apply(p, web, service("plain", 2, enginetest.TCPPort(82)))
	terms := func(port uint16) *registry.Terms { return p.listeners[enginetest.TCPPort(port)].claims.first.Terms }
	if terms(80) != registry.NoTerms || terms(82) != registry.NoTerms {
		t.Error("claims that ask for nothing have terms of their own")
	}
	sticky := *web
	sticky.Asked = &registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: time.Hour}
	apply(p, &sticky)
	if got := terms(80); got != terms(81) || !got.Equal(sticky.Asked) {
		t.Errorf("terms at %p and %p, of a service that has them at %p: %+v", got, terms(81), sticky.Asked, got)
	}
}

// What is kept for the totals follows the services there are, also when they are never asked for.
func TestTalliesOfServicesThatAreGoneAreForgotten(t *testing.T) {
	p, _ := newFakeProxier()
	for i := range 1000 {
		name := fmt.Sprint("service-", i)
		apply(p, service(name, 1, enginetest.TCPPort(80)))
		if i%100 == 0 { // one that stays active for a while
			active := &p.listeners[enginetest.TCPPort(80)].claims.first.Tally.Active
			active.Add(1)
			defer active.Add(-1)
		}
		apply(p, service(name, 0))
	}
	if n := len(p.tallies.All); n < 10 || n > 100 {
		t.Errorf("%d tallies are kept, of which 10 are active", n)
	}
	if n := len(p.Totals()); n != 10 {
		t.Errorf("the totals tell of %d services; want the 10 that are active", n)
	}
}

func TestAProtocolChangeReopensThePort(t *testing.T) { // D33
	p, e := newFakeProxier()
	apply(p, service("dns", 1, enginetest.TCPPort(53)))
	apply(p, service("dns", 1, enginetest.UDPPort(53)))
	wantOwners(t, e, map[registry.ListenerID]string{enginetest.UDPPort(53): "dns"})
}

func TestSwappedPortsChangeHandsWithoutClosing(t *testing.T) { // D34
	p, e := newFakeProxier()
	apply(p, service("a", 1, enginetest.TCPPort(80)), service("b", 2, enginetest.TCPPort(81)))
	for range 5 {
		apply(p, service("a", 1, enginetest.TCPPort(81)), service("b", 2, enginetest.TCPPort(80)))
		wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(81): "a", enginetest.TCPPort(80): "b"})
		apply(p, service("a", 1, enginetest.TCPPort(80)), service("b", 2, enginetest.TCPPort(81)))
		wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(80): "a", enginetest.TCPPort(81): "b"})
	}
	if e.opened != 2 {
		t.Errorf("%d sockets were opened; want 2", e.opened)
	}
	if e.handovers != 20 {
		t.Errorf("the engine heard of %d changes of hand; want 20", e.handovers)
	}
}

func TestARecreatedServiceKeepsItsPort(t *testing.T) {
	p, e := newFakeProxier()
	apply(p, service("a", 1, enginetest.TCPPort(80)), service("b", 2, enginetest.TCPPort(80)))
	apply(p, service("a", 9, enginetest.TCPPort(80))) // deleted and created again in one batch: younger than b now
	wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(80): "a"})
	if e.opened != 1 || e.handovers != 0 {
		t.Errorf("opened %d times, %d changes of hand; want once, none", e.opened, e.handovers)
	}
}

func TestAPortRenamedKeepsItsSocketAndTakesTheOtherRotation(t *testing.T) {
	p, e := newFakeProxier()
	s := service("web", 1, enginetest.TCPPort(80))
	apply(p, s)
	renamed := *s
	renamed.Ports = []registry.Port{{Name: "http", Number: 80}}
	apply(p, &renamed)
	wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(80): "web:http"})
	if e.opened != 1 {
		t.Errorf("opened %d times; want once", e.opened)
	}
	if got := p.lb.Rotations(); got != 1 {
		t.Errorf("%d rotations are held; want 1", got)
	}
}

// Until the port has another owner, clients come to the old one, and are not refused because that has gone.
func TestAServiceThatLeavesAPortServesItUntilTheNextOwnerDoes(t *testing.T) {
	p, e := newFakeProxier()
	one, two := enginetest.TCPPort(1), enginetest.TCPPort(2)
	apply(p, service("a", 1, one, two), service("b", 2, one, two))
	had := []*engine.Claim{p.listeners[one].owner.Load(), p.listeners[two].owner.Load()}
	e.handedOver = func() {
		for i, id := range []registry.ListenerID{one, two} {
			has := p.listeners[id].owner.Load() == had[i]
			if over := had[i].Lifetime.IsOver(); over == has {
				t.Errorf("%s has the service that leaves: %t; it is over: %t", id, has, over)
			}
		}
	}
	apply(p, service("a", 1))
	wantOwners(t, e, map[registry.ListenerID]string{one: "b", two: "b"})
}

func TestTheIncumbentKeepsThePortAndTheOthersWaitInOrder(t *testing.T) { // D30
	p, e := newFakeProxier()
	apply(p, service("incumbent", 50, enginetest.TCPPort(80)))
	apply(p, service("c", 7, enginetest.TCPPort(80)), service("b", 7, enginetest.TCPPort(80)), service("young", 9, enginetest.TCPPort(80)), service("old", 3, enginetest.TCPPort(80)))
	apply(p, service("oldest", 1, enginetest.TCPPort(80))) // a later batch: behind those who came before
	status := p.Status()
	var waiting []string
	for _, key := range status[0].Waiting {
		waiting = append(waiting, key.String())
	}
	if want := []string{"old", "b", "c", "young", "oldest"}; !slices.Equal(waiting, want) {
		t.Errorf("waiting: %v; want %v", waiting, want)
	}
	for _, name := range []string{"incumbent", "old", "b", "c", "young", "oldest"} {
		wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(80): name})
		apply(p, service(name, 0))
	}
	wantOwners(t, e, map[registry.ListenerID]string{})
	if e.opened != 1 {
		t.Errorf("opened %d times; want once: a take-over refuses nobody", e.opened)
	}
}

func TestAfterARestartTheOldestClaimHasThePort(t *testing.T) {
	p, e := newFakeProxier()
	apply(p, service("b", 2, enginetest.TCPPort(80)), service("a", 3, enginetest.TCPPort(80)), service("c", 1, enginetest.TCPPort(80)))
	wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(80): "c"})
}

func TestAnOldServiceThatAddedAPortDoesNotTakeItAfterARestart(t *testing.T) {
	p, e := newFakeProxier()
	greedy := service("greedy", 1, enginetest.TCPPort(80), enginetest.TCPPort(81))
	greedy.Date(service("greedy", 1, enginetest.TCPPort(81)), 9) // it added port 80 at revision 9
	web := service("web", 5, enginetest.TCPPort(80))
	web.Date(nil, 5)
	apply(p, greedy, web)
	wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(80): "web", enginetest.TCPPort(81): "greedy"})
}

// A port cannot be opened, or the engine cannot serve its clients once it is.
func TestAPortThatCannotBeOpenedIsTriedAgainUntilItCan(t *testing.T) {
	for name, of := range map[string]func(*fakeEngine) map[registry.ListenerID]error{
		"it is in use": func(e *fakeEngine) map[registry.ListenerID]error { return e.refuse }, "it is not served": func(e *fakeEngine) map[registry.ListenerID]error { return e.unready },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, e := newFakeProxier()
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- p.Run(ctx) }()
				of(e)[enginetest.TCPPort(80)] = errors.New("not now")
				start := time.Now()
				apply(p, service("a", 1, enginetest.TCPPort(80), enginetest.TCPPort(81)))
				wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(81): "a"}) // the other port does not suffer
				if got := p.Status()[0].Err; got == nil {
					t.Error("Status shows no error for a port that is not open")
				}
				time.Sleep(time.Minute)
				e.mu.Lock()
				delete(of(e), enginetest.TCPPort(80))
				e.mu.Unlock()
				for e.owner(enginetest.TCPPort(80)) == "" {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
				}
				if took := time.Since(start) - time.Minute; took > lastRetry {
					t.Errorf("opened %v after it could; want at most %v", took, lastRetry)
				}
				if got := p.Status()[0].Err; got != nil {
					t.Errorf("Status still shows %v", got)
				}
				stop()
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
				wantOwners(t, e, map[registry.ListenerID]string{})
			})
		})
	}
}

func TestAPortThatWasWaitedForIsLeftAloneOnceNobodyWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, e := newFakeProxier()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		e.refuse[enginetest.TCPPort(80)] = errors.New("address already in use")
		apply(p, service("a", 1, enginetest.TCPPort(80)))
		apply(p, service("a", 0))
		delete(e.refuse, enginetest.TCPPort(80))
		time.Sleep(time.Minute)
		wantOwners(t, e, map[registry.ListenerID]string{})
		stop()
		<-done
	})
}

func TestSyncedOnceTheFirstBatchIsAppliedEvenWhenEmpty(t *testing.T) {
	p, _ := newFakeProxier()
	select {
	case <-p.Synced():
		t.Fatal("synced before any batch")
	default:
	}
	p.OnUpdate(registry.Batch{})
	p.OnUpdate(registry.Batch{})
	<-p.Synced()
}

// The model keeps each port's claims as a list of names, edited by the rules as they are written
// down; the proxier must agree after every one of many random batches.
func TestClaimsAgreeWithTheModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	p, e := newFakeProxier()
	all := []registry.ListenerID{enginetest.TCPPort(80), enginetest.UDPPort(80), enginetest.TCPPort(81), enginetest.UDPPort(81),
		{Addr: netip.MustParseAddr("127.0.0.2"), Number: 80}, {Addr: netip.MustParseAddr("127.0.0.3"), Number: 80},
		{Addr: netip.MustParseAddr("127.0.0.2"), Protocol: registry.UDP, Number: 80}, {Addr: netip.IPv6Loopback(), Number: 81}}
	model := make(map[registry.ListenerID][]string)
	current := make(map[string]*registry.Service)
	for step := range 3000 {
		batch := make(map[string]*registry.Service)
		for range 1 + rng.IntN(4) {
			name := string(rune('a' + rng.IntN(6)))
			s := service(name, int64(1+rng.IntN(9)))
			for _, id := range all {
				if rng.IntN(3) == 0 {
					s.Ports = append(s.Ports, registry.Port{Addr: id.Addr, Protocol: id.Protocol, Number: id.Number})
				}
			}
			batch[name] = s
		}
		type joiner struct {
			id registry.ListenerID
			s  *registry.Service
		}
		var joiners []joiner
		for name, s := range batch {
			for _, id := range all {
				had := slices.Contains(model[id], name)
				wants := slices.ContainsFunc(s.Ports, func(p registry.Port) bool { return p.ID() == id })
				switch {
				case had && !wants:
					model[id] = slices.DeleteFunc(model[id], func(n string) bool { return n == name })
				case wants && !had:
					joiners = append(joiners, joiner{id, s})
				}
			}
			current[name] = s
		}
		slices.SortFunc(joiners, func(a, b joiner) int {
			if a.s.Created != b.s.Created {
				return int(a.s.Created - b.s.Created)
			}
			return a.s.Name.Compare(b.s.Name)
		})
		for _, j := range joiners {
			model[j.id] = append(model[j.id], j.s.Name.Name)
		}
		apply(p, slices.Collect(maps.Values(batch))...)

		want := make(map[registry.ListenerID][]string)
		for id, names := range model {
			if len(names) > 0 {
				want[id] = names
			}
		}
		got := make(map[registry.ListenerID][]string)
		for _, s := range p.Status() {
			id := s.ID
			got[id] = []string{s.Owner.String()}
			for _, w := range s.Waiting {
				got[id] = append(got[id], w.String())
			}
			if e.owner(id) != s.Owner.String() {
				t.Fatalf("step %d: the engine has %q for %s; want %s", step, e.owner(id), id, s.Owner)
			}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(registry.ListenerID{})); diff != "" {
			t.Fatalf("step %d (-want +got):\n%s", step, diff)
		}
		if len(e.open) != len(want) {
			t.Fatalf("step %d: %d sockets are open; want %d", step, len(e.open), len(want))
		}
	}
}

func TestCountsAgreeWithTheStatus(t *testing.T) {
	p, e := newFakeProxier()
	p.cfg.ReservedPorts = []uint16{82}
	e.refuse[enginetest.UDPPort(80)] = errors.New("in use")
	apply(p, service("a", 1, enginetest.TCPPort(80), enginetest.UDPPort(80), enginetest.TCPPort(81)), service("b", 2, enginetest.TCPPort(80), enginetest.TCPPort(82)), service("c", 3, enginetest.TCPPort(80), enginetest.TCPPort(82), enginetest.UDPPort(80)))
	var want [2]PortCount
	for _, s := range p.Status() {
		switch c := &want[s.ID.Protocol]; {
		case s.Refused:
			c.Refused++
		case s.Err != nil:
			c.Unopened++
			c.Waiting += len(s.Waiting)
		default:
			c.Open++
			c.Waiting += len(s.Waiting)
		}
	}
	if got := p.PortCounts(); got != want || want != [2]PortCount{{Open: 2, Refused: 1, Waiting: 2}, {Unopened: 1, Waiting: 1}} {
		t.Errorf("counted %+v, and of the status %+v", got, want)
	}
}

// A broadcaster knows a single handler of this package, so no caller can tell it of services before endpoints.
func TestAPortNeverOpensAheadOfItsEndpoints(t *testing.T) {
	p, e := newFakeProxier()
	endpoints := func(c *engine.Claim) int { return len(c.Rotation.Endpoints()) }
	behind := make(map[registry.ListenerID]int)
	e.listening = func(id registry.ListenerID, owner *atomic.Pointer[engine.Claim]) {
		behind[id] = endpoints(owner.Load())
	}
	web := service("web", 1, enginetest.TCPPort(80), enginetest.UDPPort(53))
	record := &registry.Endpoints{Name: web.Name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(enginetest.Addresses(1, 2, 3)...)}}}
	p.OnUpdate(registry.Batch{
		Services:  map[registry.Name]*registry.Service{web.Name: web},
		Endpoints: map[registry.Name]*registry.Endpoints{web.Name: record},
	})
	if want := map[registry.ListenerID]int{enginetest.TCPPort(80): 3, enginetest.UDPPort(53): 3}; !maps.Equal(behind, want) {
		t.Errorf("endpoints of each port when it was opened: %v; want %v", behind, want)
	}
	if _, ok := any(p.lb).(interface{ OnUpdate(registry.Batch) }); ok {
		t.Error("the balancer is a handler, too: the order of handlers would matter")
	}
}

// The other way round: what goes, goes after the ports that lead there.
func TestAServiceKeepsItsEndpointsUntilItsPortIsAnothers(t *testing.T) {
	p, e := newFakeProxier()
	old, heir := service("old", 1, enginetest.TCPPort(80)), service("heir", 2, enginetest.TCPPort(80))
	with := func(s *registry.Service) *registry.Endpoints {
		return &registry.Endpoints{Name: s.Name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(enginetest.Addresses(1)...)}}}
	}
	p.OnUpdate(registry.Batch{
		Services:  map[registry.Name]*registry.Service{old.Name: old, heir.Name: heir},
		Endpoints: map[registry.Name]*registry.Endpoints{old.Name: with(old), heir.Name: with(heir)},
	})
	gone := p.lb.Hold(registry.PortKey{Name: old.Name})
	left := -1
	e.handedOver = func() { left = len(gone.Endpoints()) }
	p.OnUpdate(registry.Batch{
		Services:  map[registry.Name]*registry.Service{old.Name: nil},
		Endpoints: map[registry.Name]*registry.Endpoints{old.Name: nil},
	})
	if left != 1 || len(gone.Endpoints()) != 0 {
		t.Errorf("%d endpoints when the port changed hands, %d after the batch; want 1, 0", left, len(gone.Endpoints()))
	}
}

func TestWhichAddressesServicesMayHave(t *testing.T) {
	for _, c := range []struct {
		bind, allowed, at string
		want              error
	}{
		{"0.0.0.0", "", "127.0.0.2", nil},
		{"0.0.0.0", "", "192.0.2.1", nil},
		{"0.0.0.0", "", "127.0.0.1", errAddressOfNode},
		{"0.0.0.0", "127.0.0.0/8", "127.0.0.1", errAddressOfNode},
		{"0.0.0.0", "127.0.0.0/8", "192.0.2.1", errAddressNotAllowed},
		{"0.0.0.0", "192.0.2.0/24", "127.0.0.2", errAddressNotAllowed},
		{"192.0.2.1", "", "192.0.2.1", errAddressOfNode},
		{"192.0.2.1", "", "192.0.2.2", errAddressBeside},
		{"192.0.2.1", "", "::1", nil},
		{"192.0.2.1", "192.0.2.0/24", "192.0.2.2", nil},
	} {
		cfg := Config{Config: engine.Config{BindAddress: netip.MustParseAddr(c.bind)}}
		if c.allowed != "" {
			cfg.AllowedListen = []netip.Prefix{netip.MustParsePrefix(c.allowed)}
		}
		id := registry.ListenerID{Addr: netip.MustParseAddr(c.at), Number: 80}
		if err := cfg.Refusal(registry.Name{Name: "web"}, id); err != c.want {
			t.Errorf("-bind_address=%s -allowed_listen=%s: at %s %v; want %v", c.bind, c.allowed, c.at, err, c.want)
		}
	}
}

// TestOverridesEndWithTheirEndpointsOnceEachSourceHasBeenRead: while one is silent, it may be the one that lists them.
func TestOverridesEndWithTheirEndpointsOnceEachSourceHasBeenRead(t *testing.T) {
	p, _ := newFakeProxier()
	addr := registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}
	web := registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}
	p.lb.RestoreOverrides([]balance.Override{{Service: web, Addr: addr, Until: time.Now().Add(time.Hour)}})
	listed := map[registry.Name]*registry.Endpoints{web: {Name: web, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addr)}}}}
	for _, step := range []struct {
		what  string
		batch registry.Batch
		want  int
	}{
		{"the source that lists the endpoint is silent", registry.Batch{Partial: true}, 1},
		{"the state of before the restart has it", registry.Batch{Partial: true, Endpoints: listed}, 1},
		{"that is void", registry.Batch{Partial: true, Endpoints: map[registry.Name]*registry.Endpoints{web: nil}}, 1},
		{"the source speaks", registry.Batch{Partial: true, Endpoints: listed}, 1},
		{"each source has been read", registry.Batch{}, 1},
		{"the endpoint goes", registry.Batch{Endpoints: map[registry.Name]*registry.Endpoints{web: nil}}, 0},
	} {
		p.OnUpdate(step.batch)
		if n := len(p.lb.Overrides()); n != step.want {
			t.Errorf("%s: %d overrides; want %d", step.what, n, step.want)
		}
	}
}
