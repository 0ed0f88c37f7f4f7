package kernel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"kubeproxy/proxy/balance"
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

func (s *slate) close() { s.closed = true }

// A desk is a carrier with slates for tables.
type desk struct {
	*Carrier
	t       *testing.T
	lb      *balance.LoadBalancerRR
	slates  []*slate // in the order in which they were made
	broken  int      // so many of the first operations of the next slates fail
	flushed []flow
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
		d.flushed = append(d.flushed, flow{id, e})
		return nil
	}
	d.look()
	return d
}

// claim gives a port to a service whose endpoints are sound. Their health is this test's: the carrier judges by its name.
func (d *desk) claim(id registry.ListenerID, service string, terms registry.Terms) *engine.Claim {
	key := registry.PortKey{Name: registry.Name{Namespace: "default", Name: service}}
	c := &engine.Claim{Key: key, Rotation: d.lb.Hold(key), Tally: d.tallies.Hold(key, id.Protocol), Terms: &terms}
	d.Claim(id, c)
	d.Apply()
	return c
}

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
	d.Stop()
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
	own, lonely, loopback := at("10.0.0.9", web), at("10.0.0.9", dns), at("127.0.0.9", web)
	d.claim(own, "own", registry.Terms{})
	d.claim(lonely, "lonely", registry.Terms{})
	d.claim(loopback, "loopback", registry.Terms{})
	if len(d.slates) != 0 {
		t.Errorf("there is a table with %v", d.table().shields)
	}
	d.claim(web, "node", registry.Terms{})
	if s := d.table().shields; len(s) != 1 || !s[own] {
		t.Errorf("the table leaves %v to userspace; want %v", s, own)
	}
	d.table().fails = 1 // and there is another table
	d.put(web, addresses("10.0.0.1:80")...)
	d.Apply()
	if s := d.table().shields; len(d.slates) != 2 || len(s) != 1 || !s[own] {
		t.Errorf("the second table leaves %v to userspace; want %v", s, own)
	}
	d.Claim(web, nil)
	d.Apply()
	if s := d.table().shields; len(s) != 0 {
		t.Errorf("without a service at the node it leaves %v to userspace", s)
	}
	d.claim(web, "node", registry.Terms{})
	d.Stop()
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
	d.Stop()
	if order := d.table().order; len(order) != len(ports)+1 || order[0] != web {
		t.Errorf("at the end changes came in the order %v", order)
	}
}
