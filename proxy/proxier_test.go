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

	"kubeproxy/registry"
)

// A fakeEngine keeps a record of what it is told instead of opening sockets.
type fakeEngine struct {
	mu        sync.Mutex // guards the fields below
	open      map[portID]*fakeSocket
	opened    int
	refuse    map[portID]error // ports that cannot be opened now
	handovers int              // of ports between owners

	listening  func(portID, *atomic.Pointer[claim]) // called for each port that opens; may be nil
	handedOver func()                               // called for each handover; may be nil
}

type fakeSocket struct {
	engine *fakeEngine
	id     portID
	owner  *atomic.Pointer[claim]
}

func (e *fakeEngine) listen(id portID, owner *atomic.Pointer[claim]) (socket, error) {
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
func (e *fakeEngine) drain(context.Context) {}
func (e *fakeEngine) limits() []Limit       { return nil }
func (e *fakeEngine) paused() uint64        { return 0 }

func (s *fakeSocket) ownerChanged() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.handovers++
	if s.engine.handedOver != nil {
		s.engine.handedOver()
	}
}

func (*fakeEngine) stalled() error       { return nil }
func (*fakeEngine) turnTimes() TurnTimes { return TurnTimes{} }

func (s *fakeSocket) close() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	delete(s.engine.open, s.id)
}

// owner names who has a port, or nobody when it is not open.
func (e *fakeEngine) owner(id portID) (name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.open[id]; s != nil {
		name = s.owner.Load().key.String()
	}
	return name
}

func newFakeProxier() (*Proxier, *fakeEngine) {
	e := &fakeEngine{open: make(map[portID]*fakeSocket), refuse: make(map[portID]error)}
	p := NewProxier(Config{BindAddress: netip.MustParseAddr("127.0.0.1")}, NewLoadBalancerRR(false))
	p.engine = e
	return p, e
}

func tcpPort(n uint16) portID { return portID{registry.TCP, n} }
func udpPort(n uint16) portID { return portID{registry.UDP, n} }

// service makes a service that claims the given ports.
func service(name string, created int64, ids ...portID) *registry.Service {
	s := &registry.Service{Name: registry.Name{Namespace: registry.DefaultNamespace, Name: name}, Created: created}
	for _, id := range ids {
		s.Ports = append(s.Ports, registry.Port{Protocol: id.protocol, Number: id.number})
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

func wantOwners(t *testing.T, e *fakeEngine, want map[portID]string) {
	t.Helper()
	got := make(map[portID]string)
	for id := range e.open {
		got[id] = e.owner(id)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(portID{})); diff != "" {
		t.Errorf("open ports and their owners (-want +got):\n%s", diff)
	}
}

func TestAServiceOpensItsPortsAndClosesThem(t *testing.T) {
	p, e := newFakeProxier()
	apply(p, service("web", 1, tcpPort(80), udpPort(80)))
	wantOwners(t, e, map[portID]string{tcpPort(80): "web", udpPort(80): "web"})
	apply(p, service("web", 1, tcpPort(81)))
	wantOwners(t, e, map[portID]string{tcpPort(81): "web"})
	apply(p, service("web", 0))
	wantOwners(t, e, map[portID]string{})
	if len(p.lb.services) != 0 {
		t.Errorf("rotations of %d services are still held", len(p.lb.services))
	}
	if got := p.Totals(); len(got) != 0 {
		t.Errorf("there are still totals: %+v", got)
	}
}

func TestAServiceThatMovesToAnotherPortKeepsItsTotals(t *testing.T) {
	p, _ := newFakeProxier()
	apply(p, service("web", 1, tcpPort(80)))
	p.listeners[tcpPort(80)].claims.first.tally.sent.Add(7)
	apply(p, service("web", 1, tcpPort(81)))
	if got := p.Totals(); len(got) != 1 || got[0].Sent != 7 {
		t.Errorf("totals %+v; want the 7 bytes of before", got)
	}
}

// Nobody may ever ask for the totals: what is kept for them follows the services there are all the same.
func TestTalliesOfServicesThatAreGoneAreForgotten(t *testing.T) {
	p, _ := newFakeProxier()
	for i := range 1000 {
		name := fmt.Sprint("service-", i)
		apply(p, service(name, 1, tcpPort(80)))
		if i%100 == 0 { // one that stays active for a while
			active := &p.listeners[tcpPort(80)].claims.first.tally.active
			active.Add(1)
			defer active.Add(-1)
		}
		apply(p, service(name, 0))
	}
	if n := len(p.tallies.all); n < 10 || n > 100 {
		t.Errorf("%d tallies are kept, of which 10 are active", n)
	}
	if n := len(p.Totals()); n != 10 {
		t.Errorf("the totals tell of %d services; want the 10 that are active", n)
	}
}

func TestAProtocolChangeReopensThePort(t *testing.T) { // D33
	p, e := newFakeProxier()
	apply(p, service("dns", 1, tcpPort(53)))
	apply(p, service("dns", 1, udpPort(53)))
	wantOwners(t, e, map[portID]string{udpPort(53): "dns"})
}

func TestSwappedPortsChangeHandsWithoutClosing(t *testing.T) { // D34
	p, e := newFakeProxier()
	apply(p, service("a", 1, tcpPort(80)), service("b", 2, tcpPort(81)))
	for range 5 {
		apply(p, service("a", 1, tcpPort(81)), service("b", 2, tcpPort(80)))
		wantOwners(t, e, map[portID]string{tcpPort(81): "a", tcpPort(80): "b"})
		apply(p, service("a", 1, tcpPort(80)), service("b", 2, tcpPort(81)))
		wantOwners(t, e, map[portID]string{tcpPort(80): "a", tcpPort(81): "b"})
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
	apply(p, service("a", 1, tcpPort(80)), service("b", 2, tcpPort(80)))
	apply(p, service("a", 9, tcpPort(80))) // deleted and created again in one batch: younger than b now
	wantOwners(t, e, map[portID]string{tcpPort(80): "a"})
	if e.opened != 1 || e.handovers != 0 {
		t.Errorf("opened %d times, %d changes of hand; want once, none", e.opened, e.handovers)
	}
}

func TestAPortRenamedKeepsItsSocketAndTakesTheOtherRotation(t *testing.T) {
	p, e := newFakeProxier()
	s := service("web", 1, tcpPort(80))
	apply(p, s)
	renamed := *s
	renamed.Ports = []registry.Port{{Name: "http", Number: 80}}
	apply(p, &renamed)
	wantOwners(t, e, map[portID]string{tcpPort(80): "web:http"})
	if e.opened != 1 {
		t.Errorf("opened %d times; want once", e.opened)
	}
	if got := len(p.lb.services[s.Name]); got != 1 {
		t.Errorf("%d rotations are held; want 1", got)
	}
}

func TestTheIncumbentKeepsThePortAndTheOthersWaitInOrder(t *testing.T) { // D30
	p, e := newFakeProxier()
	apply(p, service("incumbent", 50, tcpPort(80)))
	apply(p, service("c", 7, tcpPort(80)), service("b", 7, tcpPort(80)), service("young", 9, tcpPort(80)), service("old", 3, tcpPort(80)))
	apply(p, service("oldest", 1, tcpPort(80))) // a later batch: behind those who came before
	status := p.Status()
	var waiting []string
	for _, key := range status[0].Waiting {
		waiting = append(waiting, key.String())
	}
	if want := []string{"old", "b", "c", "young", "oldest"}; !slices.Equal(waiting, want) {
		t.Errorf("waiting: %v; want %v", waiting, want)
	}
	for _, name := range []string{"incumbent", "old", "b", "c", "young", "oldest"} {
		wantOwners(t, e, map[portID]string{tcpPort(80): name})
		apply(p, service(name, 0))
	}
	wantOwners(t, e, map[portID]string{})
	if e.opened != 1 {
		t.Errorf("opened %d times; want once: a take-over refuses nobody", e.opened)
	}
}

func TestAfterARestartTheOldestClaimHasThePort(t *testing.T) {
	p, e := newFakeProxier()
	apply(p, service("b", 2, tcpPort(80)), service("a", 3, tcpPort(80)), service("c", 1, tcpPort(80)))
	wantOwners(t, e, map[portID]string{tcpPort(80): "c"})
}

func TestAnOldServiceThatAddedAPortDoesNotTakeItAfterARestart(t *testing.T) {
	p, e := newFakeProxier()
	greedy := service("greedy", 1, tcpPort(80), tcpPort(81))
	greedy.Date(service("greedy", 1, tcpPort(81)), 9) // it added port 80 at revision 9
	web := service("web", 5, tcpPort(80))
	web.Date(nil, 5)
	apply(p, greedy, web)
	wantOwners(t, e, map[portID]string{tcpPort(80): "web", tcpPort(81): "greedy"})
}

func TestAPortThatCannotBeOpenedIsTriedAgainUntilItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, e := newFakeProxier()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		e.refuse[tcpPort(80)] = errors.New("address already in use")
		start := time.Now()
		apply(p, service("a", 1, tcpPort(80), tcpPort(81)))
		wantOwners(t, e, map[portID]string{tcpPort(81): "a"}) // the other port does not suffer
		if got := p.Status()[0].Err; got == nil {
			t.Error("Status shows no error for a port that is not open")
		}
		time.Sleep(time.Minute)
		e.mu.Lock()
		delete(e.refuse, tcpPort(80))
		e.mu.Unlock()
		for e.owner(tcpPort(80)) == "" {
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
		wantOwners(t, e, map[portID]string{})
	})
}

func TestAPortThatWasWaitedForIsLeftAloneOnceNobodyWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, e := newFakeProxier()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		e.refuse[tcpPort(80)] = errors.New("address already in use")
		apply(p, service("a", 1, tcpPort(80)))
		apply(p, service("a", 0))
		delete(e.refuse, tcpPort(80))
		time.Sleep(time.Minute)
		wantOwners(t, e, map[portID]string{})
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
	model := make(map[portID][]string)
	current := make(map[string]*registry.Service)
	for step := range 3000 {
		batch := make(map[string]*registry.Service)
		for range 1 + rng.IntN(4) {
			name := string(rune('a' + rng.IntN(6)))
			s := service(name, int64(1+rng.IntN(9)))
			for n := range uint16(4) {
				if rng.IntN(3) == 0 {
					s.Ports = append(s.Ports, registry.Port{Protocol: registry.Protocol(n % 2), Number: 80 + n/2})
				}
			}
			batch[name] = s
		}
		type joiner struct {
			id portID
			s  *registry.Service
		}
		var joiners []joiner
		for name, s := range batch {
			for _, id := range []portID{tcpPort(80), udpPort(80), tcpPort(81), udpPort(81)} {
				had := slices.Contains(model[id], name)
				wants := slices.ContainsFunc(s.Ports, func(p registry.Port) bool { return portID{p.Protocol, p.Number} == id })
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

		want := make(map[portID][]string)
		for id, names := range model {
			if len(names) > 0 {
				want[id] = names
			}
		}
		got := make(map[portID][]string)
		for _, s := range p.Status() {
			id := portID{s.Protocol, s.Port}
			got[id] = []string{s.Owner.String()}
			for _, w := range s.Waiting {
				got[id] = append(got[id], w.String())
			}
			if e.owner(id) != s.Owner.String() {
				t.Fatalf("step %d: the engine has %q for %s; want %s", step, e.owner(id), id, s.Owner)
			}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(portID{})); diff != "" {
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
	e.refuse[udpPort(80)] = errors.New("in use")
	apply(p, service("a", 1, tcpPort(80), udpPort(80), tcpPort(81)), service("b", 2, tcpPort(80), tcpPort(82)), service("c", 3, tcpPort(80), tcpPort(82), udpPort(80)))
	var want [2]PortCount
	for _, s := range p.Status() {
		switch c := &want[s.Protocol]; {
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
	endpoints := func(c *claim) int { return len(c.rotation.awake().endpoints) }
	behind := make(map[portID]int)
	e.listening = func(id portID, owner *atomic.Pointer[claim]) { behind[id] = endpoints(owner.Load()) }
	web := service("web", 1, tcpPort(80), udpPort(53))
	record := &registry.Endpoints{Name: web.Name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs(1, 2, 3)...)}}}
	p.OnUpdate(registry.Batch{
		Services:  map[registry.Name]*registry.Service{web.Name: web},
		Endpoints: map[registry.Name]*registry.Endpoints{web.Name: record},
	})
	if want := map[portID]int{tcpPort(80): 3, udpPort(53): 3}; !maps.Equal(behind, want) {
		t.Errorf("endpoints of each port when it was opened: %v; want %v", behind, want)
	}
	if _, ok := any(p.lb).(interface{ OnUpdate(registry.Batch) }); ok {
		t.Error("the balancer is a handler, too: the order of handlers would matter")
	}
}

// The other way round: what goes, goes after the ports that lead there.
func TestAServiceKeepsItsEndpointsUntilItsPortIsAnothers(t *testing.T) {
	p, e := newFakeProxier()
	old, heir := service("old", 1, tcpPort(80)), service("heir", 2, tcpPort(80))
	with := func(s *registry.Service) *registry.Endpoints {
		return &registry.Endpoints{Name: s.Name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs(1)...)}}}
	}
	p.OnUpdate(registry.Batch{
		Services:  map[registry.Name]*registry.Service{old.Name: old, heir.Name: heir},
		Endpoints: map[registry.Name]*registry.Endpoints{old.Name: with(old), heir.Name: with(heir)},
	})
	gone := p.lb.hold(registry.PortKey{Name: old.Name})
	left := -1
	e.handedOver = func() { left = len(gone.awake().endpoints) }
	p.OnUpdate(registry.Batch{
		Services:  map[registry.Name]*registry.Service{old.Name: nil},
		Endpoints: map[registry.Name]*registry.Endpoints{old.Name: nil},
	})
	if left != 1 || len(gone.awake().endpoints) != 0 {
		t.Errorf("%d endpoints when the port changed hands, %d after the batch; want 1, 0", left, len(gone.awake().endpoints))
	}
}
