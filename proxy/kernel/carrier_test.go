package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A slate is a table without a kernel.
type slate struct {
	ports   map[registry.ListenerID][]netip.AddrPort
	shields map[registry.ListenerID]bool
	order   []registry.ListenerID // of changes
	counts  map[registry.ListenerID]uint64
	fails   int // so many of the next operations
	closed  bool
}

var errSlate = errors.New("the slate is broken")

func (s *slate) apply(changes []change) error {
	if s.fails > 0 {
		s.fails--
		return errSlate
	}
	for _, c := range changes {
		if had := s.ports[c.id]; fmt.Sprint(had) != fmt.Sprint(c.before) {
			return fmt.Errorf("%s has %v, and is to have had %v", c.id, had, c.before)
		}
		if c.recounts() {
			delete(s.counts, c.id)
		}
		if s.shields[c.id] != c.shielded {
			return fmt.Errorf("%s: shielded %t, and is to have been %t", c.id, s.shields[c.id], c.shielded)
		}
		if s.shields[c.id] = true; !c.shields {
			delete(s.shields, c.id)
		}
		s.order = append(s.order, c.id)
		if s.ports[c.id] = c.after; len(c.after) == 0 {
			delete(s.ports, c.id)
		}
	}
	return nil
}

func (s *slate) connections() (map[registry.ListenerID]uint64, error) {
	return maps.Clone(s.counts), nil
}

func (s *slate) connectionsOf(changes []change) (map[registry.ListenerID]uint64, error) {
	counts := make(map[registry.ListenerID]uint64)
	for _, c := range changes {
		counts[c.id] = s.counts[c.id]
	}
	return counts, nil
}

func (s *slate) tidy() error { return nil }

func (s *slate) close() { s.closed = true }

// A desk is a carrier with slates for tables.
type desk struct {
	*Carrier
	t       *testing.T
	lb      *balance.LoadBalancerRR
	slates  []*slate // in the order in which they were made
	broken  int      // so many of the first operations of the next slates fail
	flushed []flow
	broke   error  // why flows cannot be deleted
	found   []flow // what an earlier process left
	unread  error  // why that cannot be read
	reads   int    // of that
	tallies traffic.Tallies
	drops   error
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, lb: balance.NewLoadBalancerRR(false), tallies: traffic.Tallies{All: make(map[traffic.TallyKey]*traffic.Tally)}}
	d.Carrier = New(netip.IPv4Unspecified(), *anywhere())
	d.Carrier.open = func(netip.Addr) (table, error) {
		s := &slate{ports: make(map[registry.ListenerID][]netip.AddrPort), shields: make(map[registry.ListenerID]bool), counts: make(map[registry.ListenerID]uint64), fails: d.broken}
		d.slates = append(d.slates, s)
		return s, nil
	}
	d.Carrier.forwards = func() [2]error { return [2]error{} }
	d.Carrier.drops = func() error { return d.drops }
	d.Carrier.flush = func(id registry.ListenerID, e netip.AddrPort) error {
		if d.broke == nil {
			d.flushed = append(d.flushed, flow{id, e})
		}
		return d.broke
	}
	d.Carrier.others = func() (map[flow]bool, error) { return nil, nil }
	d.Carrier.list = func() ([]flow, error) {
		d.reads++
		return d.found, d.unread
	}
	d.look()
	return d
}

// claim gives a port to a service whose endpoints are sound. Their health is this test's: the carrier judges by its name.
func (d *desk) claim(id registry.ListenerID, service string, terms registry.Terms) *engine.Claim {
	c := d.note(id, service, terms)
	d.Apply()
	return c
}

// note is claim for one of several ports, before Apply.
func (d *desk) note(id registry.ListenerID, service string, terms registry.Terms) *engine.Claim {
	key := registry.PortKey{Name: named(service)}
	c := &engine.Claim{Key: key, Rotation: d.lb.Hold(key), Tally: d.tallies.Hold(key, id.Protocol), Terms: &terms}
	d.Claim(id, c)
	return c
}

func named(service string) registry.Name { return registry.Name{Namespace: "default", Name: service} }

// check has the endpoints of a service checked. If the checker does not run, they are awaited.
func (d *desk) check(of string, endpoints ...string) {
	if d.lb.Checker == nil {
		d.lb.Checker = checks.New(checks.Settings{On: true}, allowing{}, allowing{})
		d.lb.Checker.Ask = func(*checks.Key) error { return nil }
	}
	name := named(of)
	d.setEndpoints(name, func(registry.Addr) registry.Place { return 0 }, endpoints...)
	service := &registry.Service{Name: name, Ports: []registry.Port{{Number: 80}, {Protocol: registry.UDP, Number: 53}}}
	service.SetTerms(registry.Terms{Checks: registry.Check{Send: "who?"}}) // over UDP
	d.lb.SetServices(map[registry.Name]*registry.Service{name: service}, nil)
}

// setEndpoints gives a service endpoints at places.
func (d *desk) setEndpoints(of registry.Name, place func(registry.Addr) registry.Place, endpoints ...string) {
	var all []registry.Addr
	for _, e := range addresses(endpoints...) {
		all = append(all, registry.Addr{IP: e})
	}
	addrs := registry.NewAddrs(all...)
	d.lb.SetEndpoints(map[registry.Name]*registry.Endpoints{of: {Name: of, ByPort: []registry.PortAddrs{{Addrs: addrs, Places: registry.PlacesOf(addrs, place)}}}})
}

// allowing lets checks ask every address.
type allowing struct{}

func (allowing) Recall(_ registry.Protocol, addr registry.Addr) ([]netip.AddrPort, error, bool) {
	return []netip.AddrPort{addr.IP}, nil, true
}

func (allowing) Resolve(context.Context, registry.Protocol, registry.Addr) ([]netip.AddrPort, error) {
	return nil, errors.New("there is no name to resolve")
}

func (allowing) Take(int) bool { return true }
func (allowing) Release(int)   {}

// table is the last slate.
func (d *desk) table() *slate {
	d.t.Helper()
	if len(d.slates) == 0 {
		d.t.Fatal("there is no table")
	}
	return d.slates[len(d.slates)-1]
}

// put has the carrier install endpoints for a port, as if they were judged sound.
func (d *desk) put(id registry.ListenerID, endpoints ...netip.AddrPort) bool {
	return d.putBeside(id, nil, endpoints...)
}

// putBeside is put where flows to other endpoints go on.
func (d *desk) putBeside(id registry.ListenerID, stay []netip.AddrPort, endpoints ...netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.ports[id]
	v := verdict{change{id: id, before: p.installed, after: fill(p.installed, endpoints), shielded: p.shielded}, p, Carried, stay}
	return d.installLocked([]verdict{v})
}

var web = registry.ListenerID{Protocol: registry.TCP, Number: 80}
var dns = registry.ListenerID{Protocol: registry.UDP, Number: 53}

func TestConnectionsOfTheKernelAreCountedForWhoHadThePort(t *testing.T) {
	d := newDesk(t)
	first := d.claim(web, "first", registry.Terms{})
	d.put(web, addresses("10.0.0.1:80")...)
	d.table().counts[web] = 5
	d.Count()
	d.table().counts[web] = 7
	second := d.claim(web, "second", registry.Terms{}) // its endpoints are not checked
	if got := first.Tally.Totals(); got.Carried != 7 || got.Begun != 7 || got.Active != 0 {
		t.Errorf("the first service has %+v; want 7 connections", got)
	}
	if _, is := d.table().ports[web]; is || d.Why(web) != NoEndpoints {
		t.Errorf("the port of a service without endpoints is carried: %v", d.Why(web))
	}
	d.put(web, addresses("10.0.0.2:80")...)
	d.table().counts[web] = 2
	d.Stop(false)
	if got := second.Tally.Totals().Carried; got != 2 {
		t.Errorf("the second service has %d connections; want 2", got)
	}
	if n := d.Status().Ports; n[Off] != 1 || len(d.table().ports) != 0 {
		t.Errorf("after Stop there are %v", n)
	}
	if d.Close(); !d.table().closed {
		t.Error("the table is open after Close")
	}
}

func TestAFailedOperationLeavesNothingInTheKernelUntilItSucceeds(t *testing.T) {
	d := newDesk(t)
	d.claim(web, "web", registry.Terms{})
	d.put(web, addresses("10.0.0.1:80")...)
	first := d.table()
	first.fails = 1
	if d.put(web, addresses("10.0.0.2:80")...) || !first.closed {
		t.Fatal("the table whose operation failed is in use")
	}
	if len(d.slates) != 2 || d.table().closed || len(d.table().ports) != 0 {
		t.Errorf("there are %d tables; want a second one, empty, for connections to go on", len(d.slates))
	}
	if !d.put(web, addresses("10.0.0.2:80")...) {
		t.Error("the next operation is not tried at once")
	}
	d.broken = 1
	d.table().fails = 1
	d.put(web, addresses("10.0.0.3:80")...)
	if d.retryAt.IsZero() {
		t.Error("after a second failure the next one is not put off")
	}
	d.judgeAllLocked()
	if d.Apply(); d.Why(web) != Off {
		t.Errorf("meanwhile the port is %v; want off", d.Why(web))
	}
}

// A transaction takes longer than to open a port. So ports that open together enter the kernel together, when the Proxier calls Apply.
func TestAPortThatOpensWaitsForThoseThatOpenWithIt(t *testing.T) {
	d := newDesk(t)
	key := registry.PortKey{Name: registry.Name{Namespace: "default", Name: "web"}}
	d.Claim(web, &engine.Claim{Key: key, Rotation: d.lb.Hold(key), Tally: d.tallies.Hold(key, web.Protocol), Terms: registry.NoTerms})
	if len(d.wake) > 0 || d.Why(web) != NotOpen {
		t.Errorf("Run is to judge the port at once, and it is %v", d.Why(web))
	}
	if d.Apply(); d.Why(web) != NoEndpoints {
		t.Errorf("after Apply the port is %v; want no-endpoints", d.Why(web))
	}
}

func TestUDPFlowsToAnEndpointThatLeavesAreDeletedWhenApplyReturns(t *testing.T) {
	d := newDesk(t)
	d.claim(dns, "dns", registry.Terms{})
	d.put(dns, addresses("10.0.0.1:53", "10.0.0.2:53")...)
	d.flushSome()
	if len(d.flushed) != 0 {
		t.Errorf("%v are deleted", d.flushed)
	}
	d.put(dns, addresses("10.0.0.2:53")...)
	d.flushSome()
	if want := (flow{dns, netip.MustParseAddrPort("10.0.0.1:53")}); len(d.flushed) != 1 || d.flushed[0] != want {
		t.Errorf("%v are deleted; want %v", d.flushed, want)
	}
	d.Claim(dns, nil)
	if d.Apply(); len(d.flushed) != 2 {
		t.Errorf("when the port closes, %v are deleted; want both endpoints", d.flushed)
	}
	if len(d.ports) != 0 || len(d.byRotation) != 0 || len(d.reasons) != 0 {
		t.Error("a port that is closed is remembered")
	}
	var many []string
	for i := range fewFlows + 1 {
		many = append(many, fmt.Sprintf("10.0.0.%d:53", i+1))
	}
	d.claim(dns, "dns", registry.Terms{})
	d.put(dns, addresses(many...)...)
	d.Claim(dns, nil)
	if d.Apply(); len(d.flushed) != 2+fewFlows || len(d.left) != 1 {
		t.Errorf("of %d endpoints, flows of %d are deleted at once, and of %d later; want %d and 1", len(many), len(d.flushed)-2, len(d.left), fewFlows)
	}
}

func TestUDPFlowsThatCouldNotBeDeletedAreTriedAgainAtTheNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.claim(dns, "dns", registry.Terms{})
		d.put(dns, addresses("10.0.0.1:53", "10.0.0.2:53", "10.0.0.3:53")...)
		var mu sync.Mutex // guards the variables below
		var done []string
		var tries int
		failing := map[string]bool{"10.0.0.1:53": true, "10.0.0.2:53": true}
		d.Carrier.flush = func(_ registry.ListenerID, e netip.AddrPort) error {
			mu.Lock()
			defer mu.Unlock()
			if tries++; failing[e.String()] {
				return errors.New("no descriptors")
			}
			done = append(done, e.String())
			return nil
		}
		// after returns what was done by then, where some endpoints do not fail any more.
		after := func(wait time.Duration, mended ...string) ([]string, int) {
			mu.Lock()
			for _, e := range mended {
				delete(failing, e)
			}
			mu.Unlock()
			time.Sleep(wait)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Sorted(slices.Values(done)), tries
		}
		go d.Run(t.Context())
		after(0)
		d.Claim(dns, nil)
		d.Apply()
		_, before := after(0) // so Run waits, too
		if _, tries := after(period - time.Millisecond); tries != before {
			t.Errorf("before the next look there are %d tries more; want none", tries-before)
		}
		// At most one of them fails at a look, and what comes after it waits for the next one.
		if done, _ := after(3*period, "10.0.0.2:53"); !slices.Equal(done, []string{"10.0.0.2:53", "10.0.0.3:53"}) {
			t.Errorf("while one fails those that are deleted are %v; want the others", done)
		}
		done, _ = after(period, "10.0.0.1:53")
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(done) != 3 || len(d.left) != 0 {
			t.Errorf("at last %v are deleted, and %v wait; want all, and none", done, d.left)
		}
	})
}

// To delete the flows to many endpoints takes long. Meanwhile ports of other services follow their endpoints, or clients would be given what has failed.
func TestPortsFollowTheirEndpointsWhileManyUDPFlowsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 100 * time.Millisecond
		d := newDesk(t)
		d.Carrier.flush = func(registry.ListenerID, netip.AddrPort) error {
			time.Sleep(each)
			return nil
		}
		d.claim(dns, "dns", registry.Terms{})
		other := d.claim(web, "web", registry.Terms{}).Rotation
		go d.Run(t.Context())
		synctest.Wait()
		var many []string
		for i := range 10 * fewFlows {
			many = append(many, fmt.Sprintf("10.0.0.%d:53", i+1))
		}
		d.put(web, addresses("10.0.1.1:80")...)
		d.put(dns, addresses(many...)...)
		d.put(dns)
		d.awaken()
		time.Sleep(each / 2)
		d.Changed(other) // it has no endpoint
		time.Sleep(fewFlows * each)
		d.mu.Lock()
		if left := len(d.left); len(d.table().ports[web]) != 0 || left < len(many)/2 {
			t.Errorf("after a batch %d flows are left, and the other port is given %v", left, d.table().ports[web])
		}
		d.mu.Unlock()
		time.Sleep(time.Duration(len(many)) * each)
		d.mu.Lock()
		if len(d.left) != 0 {
			t.Errorf("%d flows are left at last; want none", len(d.left))
		}
		d.mu.Unlock()
	})
}

// wait has the flows of a service that has gone to many endpoints wait for their deletion.
func (d *desk) wait() []flow {
	other := registry.ListenerID{Protocol: registry.UDP, Number: 54}
	for i := range 10 * fewFlows {
		d.left = append(d.left, flow{other, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), 53)})
	}
	return slices.Clone(d.left)
}

func TestABatchDeletesItsUDPFlowsBeforeThoseOfOthersThatWait(t *testing.T) {
	d := newDesk(t)
	d.claim(dns, "dns", registry.Terms{})
	d.put(dns, addresses("10.0.0.1:53")...)
	waiting := d.wait()
	d.Claim(dns, nil)
	if d.Apply(); !slices.Contains(d.flushed, flowsOf(dns, "10.0.0.1:53")[0]) || len(d.flushed) != fewFlows {
		t.Errorf("%d are deleted, and not those of the port that closes", len(d.flushed))
	}
	for d.flushSome() {
	}
	if len(d.flushed) != 1+len(waiting) || len(d.left) != 0 {
		t.Errorf("%d are deleted in the end, and %d left", len(d.flushed), len(d.left))
	}
}

// The Proxier waits, and with it whatever changes.
func TestEndFlowsDeletesThoseToItsEndpointAndNoneOfOthersThatWait(t *testing.T) {
	const endpoint = "10.0.0.1:53"
	d := newDesk(t)
	d.claim(dns, "dns", registry.Terms{})
	d.put(dns, addresses(endpoint, "10.0.0.2:53")...)
	waiting := d.wait()
	own := at("10.0.0.9", dns)
	d.left = append(flowsOf(own, endpoint), d.left...) // its checks have failed, say
	d.EndFlows(named("dns"), netip.MustParseAddrPort(endpoint))
	if got, want := d.deleted(), append(flowsOf(dns, endpoint), flowsOf(own, endpoint)...); !slices.Equal(got, want) || !slices.Equal(d.left, waiting) {
		t.Errorf("%v are deleted, and %d wait; want %v, and %d", got, len(d.left), want, len(waiting))
	}
	d.broke = errors.New("no descriptors")
	d.EndFlows(named("dns"), netip.MustParseAddrPort("10.0.0.2:53"))
	if d.broke = nil; len(d.left) != 1+len(waiting) {
		t.Errorf("%d wait after a deletion has failed; want it to be tried again", len(d.left))
	}
}

func TestNotEverSoManyUDPFlowsWaitForAnotherTry(t *testing.T) {
	d := newDesk(t)
	d.broke = errors.New("no descriptors")
	d.left = make([]flow, maxLeft+fewFlows)
	if d.flushSome() || len(d.left) != maxLeft {
		t.Errorf("%d flows wait; want %d", len(d.left), maxLeft)
	}
}

func TestUDPFlowsAreNotDeletedLateWhenTheirEndpointHasComeBack(t *testing.T) {
	d := newDesk(t)
	d.claim(dns, "dns", registry.Terms{})
	d.put(dns, addresses("10.0.0.1:53", "10.0.0.2:53", "10.0.0.3:53")...)
	d.broke = errors.New("no descriptors")
	d.put(dns, addresses("10.0.0.3:53")...)
	d.flushSome()
	d.put(dns, addresses("10.0.0.1:53", "10.0.0.3:53")...)
	d.broke = nil
	if d.flushSome(); !slices.Equal(d.flushed, []flow{{dns, netip.MustParseAddrPort("10.0.0.2:53")}}) {
		t.Errorf("%v are deleted; want those to the endpoint that is gone", d.flushed)
	}
}

// A port leaves the kernel because of one endpoint. Flows to the others go on, and are deleted when something speaks against those.
func TestUDPFlowsGoOnWhileTheirPortIsUserspaces(t *testing.T) {
	for _, successor := range []bool{false, true} {
		d := newDesk(t)
		if successor { // whose predecessor may have left flows to any endpoint
			d.Prepare()
		}
		d.claim(dns, "dns", registry.Terms{})
		if d.ports[dns].inherits = successor; !successor {
			d.put(dns, addresses("10.0.0.1:53", "10.0.0.2:53")...)
		}
		for _, step := range []struct {
			stay, installed []string
			deleted         []string
		}{
			{stay: []string{"10.0.0.1:53", "10.0.0.2:53"}},
			{stay: []string{"10.0.0.1:53"}, installed: []string{"10.0.0.3:53"}, deleted: []string{"10.0.0.2:53"}},
			{stay: []string{"10.0.0.1:53", "10.0.0.3:53"}},
			{installed: []string{"10.0.0.1:53"}, deleted: []string{"10.0.0.3:53"}},
			{deleted: []string{"10.0.0.1:53"}},
		} {
			d.flushed = nil
			d.putBeside(dns, addresses(step.stay...), addresses(step.installed...)...)
			d.flushSome()
			var deleted []string
			for _, f := range d.flushed {
				deleted = append(deleted, f.endpoint.String())
			}
			if !slices.Equal(deleted, step.deleted) {
				t.Errorf("successor: %t; installed are %v, and flows to %v go on: those to %v are deleted; want %v", successor, step.installed, step.stay, deleted, step.deleted)
			}
		}
	}
}

// What a table that failed carried goes on in the next one, so its flows are known still.
func TestUDPFlowsOfATableThatFailedAreDeletedWithTheirEndpoints(t *testing.T) {
	d := newDesk(t)
	d.claim(dns, "dns", registry.Terms{})
	d.put(dns, addresses("10.0.0.1:53")...)
	d.table().fails = 1
	d.put(dns, addresses("10.0.0.1:53", "10.0.0.2:53")...)
	if d.flushSome(); len(d.flushed) != 0 {
		t.Errorf("%v are deleted with the table", d.flushed)
	}
	d.put(dns, addresses("10.0.0.2:53")...)
	if d.flushSome(); !slices.Equal(d.flushed, []flow{{dns, netip.MustParseAddrPort("10.0.0.1:53")}}) {
		t.Errorf("%v are deleted; want those to the endpoint that has gone", d.flushed)
	}
}

func TestAChainThatDropsForwardedPacketsTurnsTheKernelOff(t *testing.T) {
	d := newDesk(t)
	d.claim(web, "web", registry.Terms{})
	d.put(web, addresses("10.0.0.1:80")...)
	d.drops = errors.New("policy drop")
	if d.look(); d.Why(web) != Off || len(d.table().ports) != 0 {
		t.Errorf("the port is %v; want off", d.Why(web))
	}
	d.drops = nil
	if d.look(); d.Why(web) != NoEndpoints {
		t.Errorf("the port is %v; want judged anew", d.Why(web))
	}
}

// An endpoint may get an address of this node while its port is carried: nothing else says so.
func TestAPortIsJudgedAnewWhenTheAddressOfAnEndpointIsRefused(t *testing.T) {
	if !checks.Supported {
		t.Skip("nothing is checked on this system")
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now()) // a bubble begins in the year 2000, before that clock does
		d := newDesk(t)
		refused := false
		d.node.Refuse = func(registry.Protocol, netip.AddrPort) error {
			if refused {
				return errors.New("it is this node")
			}
			return nil
		}
		d.check("web", "10.0.0.1:80")
		defer d.lb.Release(d.claim(web, "web", registry.Terms{}).Rotation)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.lb.Checker.Run(ctx) }()
		defer func() { stop(); <-done }()
		time.Sleep(time.Minute)
		if d.look(); d.Why(web) != Carried {
			t.Fatalf("a port whose endpoint is sound is %v; want carried", d.Why(web))
		}
		refused = true
		if d.look(); d.Why(web) != Address || len(d.table().ports) != 0 {
			t.Errorf("the port is %v; want %v", d.Why(web), Address)
		}
	})
}

// An endpoint that is drained keeps its UDP flows, also where the kernel gives new clients those of another tier. One that fails then keeps none.
func TestADrainedEndpointKeepsItsFlowsWhileBackupsHaveNewClients(t *testing.T) {
	if !checks.Supported {
		t.Skip("nothing is checked on this system")
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now()) // a bubble begins in the year 2000, before that clock does
		const ordinary, backup = "10.0.0.1:53", "10.0.0.2:53"
		d := newDesk(t)
		d.check("dns", ordinary, backup)
		d.setEndpoints(named("dns"), func(a registry.Addr) registry.Place {
			if a.IP.String() == backup {
				return registry.Backup
			}
			return 0
		}, ordinary, backup)
		var fails atomic.Bool
		d.lb.Checker.Ask = func(k *checks.Key) error {
			if k.Addr.IP.String() == ordinary && fails.Load() {
				return errors.New("it fails")
			}
			return nil
		}
		defer d.lb.Release(d.claim(dns, "dns", registry.Terms{}).Rotation)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.lb.Checker.Run(ctx) }()
		defer func() { stop(); <-done }()
		// has looks anew, and fails the test unless the kernel gives new clients one endpoint and flows to others were deleted.
		has := func(when, endpoint string, deleted ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			d.look()
			d.Apply()
			if got, flushed := d.table().ports[dns], d.deleted(); !slices.Equal(got, addresses(endpoint)) || !slices.Equal(flushed, flowsOf(dns, deleted...)) {
				t.Errorf("%s the kernel has %v, and %v are deleted; want %s and %v", when, got, flushed, endpoint, deleted)
			}
		}
		has("at first", ordinary)
		match, err := registry.ParseAddrMatch(ordinary)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.lb.Override(match, balance.Override{Service: named("dns"), Word: balance.Drain, Until: time.Now().Add(time.Hour)}, false); err != nil {
			t.Fatal(err)
		}
		has("while it is drained", backup)
		fails.Store(true)
		has("when it fails", backup, ordinary)
	})
}

// at is a port of an address, with the number of another.
func at(addr string, id registry.ListenerID) registry.ListenerID {
	id.Addr = netip.MustParseAddr(addr)
	return id
}

func TestPortsOfAddressesAreCarriedBesideThatOfTheNode(t *testing.T) {
	d := newDesk(t)
	own := at("10.0.0.9", web)
	d.claim(web, "node", registry.Terms{})
	d.put(web, addresses("10.0.0.1:80")...)
	d.claim(own, "own", registry.Terms{})
	if !d.table().shields[own] {
		t.Error("clients of an address would be given to the service at the node")
	}
	d.put(own, addresses("10.0.0.2:80")...)
	if s := d.table(); s.shields[own] || fmt.Sprint(s.ports[web]) != "[10.0.0.1:80]" || fmt.Sprint(s.ports[own]) != "[10.0.0.2:80]" {
		t.Errorf("of two services of one port the table has %v, %v", s.ports, s.shields)
	}
	d.Claim(web, nil)
	d.Apply()
	if s := d.table(); len(s.ports[web]) != 0 || d.Why(web) != NotOpen {
		t.Errorf("after the service at the node has gone: %v", s.ports)
	}
	d.Claim(own, nil)
	d.Apply()
	if s := d.table(); len(s.ports)+len(s.shields) != 0 || len(d.beside) != 0 || d.Why(own) != NotOpen {
		t.Errorf("after both have gone: %v, %v", s.ports, s.shields)
	}
}

// A shield costs an element of the table, so there is one only where clients would go elsewhere without it.
func TestTheTableKnowsOfAListenerAtAnAddressWhileTheNodeHasTheSamePort(t *testing.T) {
	d := newDesk(t)
	own, linkLocal := at("10.0.0.9", web), at("169.254.0.9", web)
	lonely, loopback, linkLocal6 := at("10.0.0.9", dns), at("127.0.0.9", web), at("fe80::9", web) // two that the rules leave alone
	d.claim(own, "own", registry.Terms{})
	d.claim(linkLocal, "link-local", registry.Terms{})
	d.claim(linkLocal6, "link-local6", registry.Terms{})
	d.claim(lonely, "lonely", registry.Terms{})
	d.claim(loopback, "loopback", registry.Terms{})
	if len(d.slates) != 0 {
		t.Errorf("there is a table with %v", d.table().shields)
	}
	d.claim(web, "node", registry.Terms{})
	if s := d.table().shields; len(s) != 2 || !s[own] || !s[linkLocal] {
		t.Errorf("the table leaves %v to userspace; want %v and %v", s, own, linkLocal)
	}
	d.table().fails = 1 // and there is another table
	d.put(web, addresses("10.0.0.1:80")...)
	d.Apply()
	if s := d.table().shields; len(d.slates) != 2 || len(s) != 2 || !s[own] || !s[linkLocal] {
		t.Errorf("the second table leaves %v to userspace; want %v and %v", s, own, linkLocal)
	}
	d.Claim(web, nil)
	d.Apply()
	if s := d.table().shields; len(s) != 0 {
		t.Errorf("without a service at the node it leaves %v to userspace", s)
	}
	d.claim(web, "node", registry.Terms{})
	d.Stop(false)
	if s := d.table().shields; len(s) != 0 {
		t.Errorf("after the end it leaves %v to userspace", s)
	}
}

// Over UDP, clients of an address may have flows to endpoints of the service that had all addresses until now.
func TestFlowsOfTheNodeEndWhereAServiceGetsAnAddressOfItsOwn(t *testing.T) {
	d := newDesk(t)
	d.claim(dns, "node", registry.Terms{})
	d.put(dns, addresses("10.0.0.1:53")...)
	d.claim(at("10.0.0.9", dns), "own", registry.Terms{})
	if want := []flow{{at("10.0.0.9", dns), netip.MustParseAddrPort("10.0.0.1:53")}}; !slices.Equal(d.flushed, want) {
		t.Errorf("%v are deleted; want %v", d.flushed, want)
	}
	var many []string
	for i := range fewFlows + 1 {
		many = append(many, fmt.Sprintf("10.0.0.%d:53", i+1))
	}
	d.put(dns, addresses(many...)...)
	select {
	case <-d.wake:
	default:
	}
	if d.claim(at("10.0.0.10", dns), "other", registry.Terms{}); len(d.left) != 1 || len(d.wake) != 1 {
		t.Errorf("of many endpoints the flows of %d are left, and Run is told %d times; want one, and once", len(d.left), len(d.wake))
	}
}

// A transaction holds so many changes. A port of the node must not be there without the ports of addresses that are left to userspace.
func TestShieldsComeBeforeWhatTheyShieldFromAndGoAfterIt(t *testing.T) {
	d := newDesk(t)
	var ports []registry.ListenerID
	for i := range 50 {
		ports = append(ports, at(fmt.Sprintf("10.0.1.%d", i), web))
		d.Claim(ports[i], &engine.Claim{Rotation: d.lb.Hold(registry.PortKey{}), Terms: new(registry.Terms)})
	}
	d.claim(web, "node", registry.Terms{})
	if order := d.table().order; len(order) != len(ports) || slices.Contains(order[:len(order)-1], web) {
		t.Errorf("changes came in the order %v", order)
	}
	d.put(web, addresses("10.0.0.1:80")...)
	d.table().order = nil
	d.Stop(false)
	if order := d.table().order; len(order) != len(ports)+1 || order[0] != web {
		t.Errorf("at the end changes came in the order %v", order)
	}
}

// Until the kernel leaves clients of the address to the listener there, the flows that are deleted would begin anew where they were.
func TestFlowsOfTheNodeAreNotDeletedBeforeTheAddressIsShielded(t *testing.T) {
	d := newDesk(t)
	own := at("10.0.0.9", dns)
	d.claim(dns, "node", registry.Terms{})
	d.put(dns, addresses("10.0.0.1:53")...)
	d.note(own, "own", registry.Terms{})
	for d.flushSome() { // as Run may at any time
	}
	if got := d.deleted(); len(got) > 0 {
		t.Errorf("%v are deleted before Apply", got)
	}
	d.Apply()
	if got, want := d.deleted(), flowsOf(own, "10.0.0.1:53"); !slices.Contains(got, want[0]) {
		t.Errorf("%v are deleted; want %v too", got, want)
	}
}
