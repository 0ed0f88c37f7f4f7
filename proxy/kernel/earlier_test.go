package kernel

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"kubeproxy/registry"
)

// to is a UDP flow to an address and port, and what it is sent to.
func to(target, endpoint string) flow {
	t := netip.MustParseAddrPort(target)
	id := registry.ListenerID{Protocol: registry.UDP, Addr: t.Addr(), Number: t.Port()}
	return flow{id, netip.MustParseAddrPort(endpoint)}
}

// deleted returns what was deleted since the last call.
func (d *desk) deleted() []flow {
	all := d.flushed
	d.flushed = nil
	slices.SortFunc(all, func(a, b flow) int { return cmp.Or(a.id.Compare(b.id), a.endpoint.Compare(b.endpoint)) })
	return all
}

func flowsOf(id registry.ListenerID, endpoints ...string) (all []flow) {
	for _, e := range addresses(endpoints...) {
		all = append(all, flow{id, e})
	}
	return all
}

func TestUDPFlowsThatAnEarlierProcessLeftAreDeletedWhereTheirEndpointIsGone(t *testing.T) {
	d := newDesk(t)
	own := at("10.0.0.9", dns)
	d.found = []flow{
		to("192.0.2.1:53", "10.0.0.1:53"), // it stays
		to("192.0.2.1:53", "10.0.0.2:53"),
		to("192.0.2.2:53", "10.0.0.2:53"),    // likewise, at another address of the node
		to("198.51.100.1:53", "10.0.0.4:53"), // another program has the node translate it on its way
		to("10.0.0.9:53", "10.0.0.3:53"),     // it stays
		to("10.0.0.9:53", "10.0.0.5:53"),
		to("192.0.2.1:54", "10.0.0.6:53"), // no service has this port
	}
	d.check("node", "10.0.0.1:53") // and is awaited: flows to it go on
	d.check("own", "10.0.0.3:53")
	d.claim(web, "web", registry.Terms{})
	if d.reads != 0 {
		t.Error("without a port over UDP there is nothing to read")
	}
	d.note(dns, "node", registry.Terms{})
	d.note(own, "own", registry.Terms{})
	d.Apply()
	if got, want := d.deleted(), append(flowsOf(dns, "10.0.0.2:53"), flowsOf(own, "10.0.0.5:53")...); !slices.Equal(got, want) {
		t.Errorf("%v are deleted; want %v", got, want)
	}
	d.claim(registry.ListenerID{Protocol: registry.UDP, Number: 54}, "other", registry.Terms{})
	if got := d.deleted(); len(got) != 1 || got[0].endpoint != netip.MustParseAddrPort("10.0.0.6:53") {
		t.Errorf("when another port is opened, %v are deleted; want what is left of it", got)
	}
	for range 3 {
		d.look()
	}
	if len(d.earlier) != 0 || d.reads != 1 || len(d.deleted()) != 0 {
		t.Errorf("after some looks %d are remembered, and they were read %d times; want none, and once", len(d.earlier), d.reads)
	}
	d.check("node", "10.0.0.7:53") // 10.0.0.1 leaves, which this process has never given a flow
	if d.look(); !slices.Equal(d.deleted(), nil) {
		t.Error("flows are deleted before the next batch")
	}
	if d.flushSome(); !slices.Equal(d.deleted(), flowsOf(dns, "10.0.0.1:53")) {
		t.Error("flows of an earlier process are forgotten when their endpoint leaves")
	}
}

// With -bind_address the node has its ports at one address.
func TestAnEarlierFlowToAnAddressWhereNoListenerIsIsNotOurs(t *testing.T) {
	d := newDesk(t)
	d.node.bind = netip.MustParseAddr("192.0.2.1")
	d.found = []flow{to("192.0.2.1:53", "10.0.0.1:53"), to("192.0.2.2:53", "10.0.0.2:53")}
	d.claim(dns, "dns", registry.Terms{})
	if got := d.deleted(); !slices.Equal(got, flowsOf(dns, "10.0.0.1:53")) {
		t.Errorf("%v are deleted; want those to the address where the port is open", got)
	}
}

// Until the predecessor's table goes, it sends clients to endpoints that it has and the successor has not.
func TestASuccessorDeletesWhatItsPredecessorLeavesUntilTheEnd(t *testing.T) {
	d := newDesk(t)
	d.Prepare()
	d.found = []flow{to("192.0.2.1:53", "10.0.0.1:53")}
	d.claim(dns, "dns", registry.Terms{})
	if got := d.deleted(); len(got) != 1 {
		t.Errorf("%v are deleted; want those to the endpoint that is gone", got)
	}
	for i := range 4 {
		d.look()
		d.flushSome()
		got, want := d.deleted(), []flow(nil)
		if i == 1 {
			want = flowsOf(dns, "10.0.0.1:53")
		}
		if !slices.Equal(got, want) {
			t.Errorf("after look %d %v are deleted; want %v", i+1, got, want)
		}
	}
	if len(d.earlier) != 0 || d.reads != 2 {
		t.Errorf("%d are remembered, and they were read %d times; want none, and twice", len(d.earlier), d.reads)
	}
}

func TestEarlierFlowsAreReadWhenTheKernelMayCarryPorts(t *testing.T) {
	d := newDesk(t)
	d.found = []flow{to("192.0.2.1:53", "10.0.0.1:53")}
	d.drops = errors.New("policy drop")
	d.look()
	if d.claim(dns, "dns", registry.Terms{}); d.reads != 0 {
		t.Error("they were read while the kernel may carry nothing")
	}
	d.drops = nil
	d.look()
	if d.flushSome(); len(d.deleted()) != 1 || d.reads != 1 {
		t.Errorf("they were read %d times; want once, and those deleted whose endpoint is gone", d.reads)
	}
}

func TestPortsAreCarriedAlsoIfEarlierFlowsCannotBeRead(t *testing.T) {
	d := newDesk(t)
	d.unread = errors.New("no descriptors")
	d.claim(dns, "dns", registry.Terms{})
	if d.put(dns, addresses("10.0.0.1:53")...); d.Why(dns) != Carried || len(d.deleted()) != 0 {
		t.Errorf("the port is %v", d.Why(dns))
	}
	if d.claim(at("10.0.0.9", dns), "own", registry.Terms{}); d.reads != 1 {
		t.Errorf("they were read %d times; want once", d.reads)
	}
}

// A source that was away, or another program that had the port, may have it open late.
func TestPortsThatOpenLateFindTheirEarlierFlowsByOneReading(t *testing.T) {
	d := newDesk(t)
	other := registry.ListenerID{Protocol: registry.UDP, Number: 54}
	d.claim(dns, "dns", registry.Terms{})
	for range 3 {
		d.look()
	}
	own := at("10.0.0.9", other)
	d.found = []flow{to("192.0.2.1:54", "10.0.0.1:53"), to("10.0.0.9:54", "10.0.0.2:53")}
	d.note(other, "other", registry.Terms{})
	d.note(own, "own", registry.Terms{})
	d.Apply()
	if got, want := d.deleted(), append(flowsOf(other, "10.0.0.1:53"), flowsOf(own, "10.0.0.2:53")...); !slices.Equal(got, want) || d.reads != 2 {
		t.Errorf("%v are deleted, and flows were read %d times; want %v, and once for the first port and once for the others", got, d.reads, want)
	}
	for range 3 {
		d.look()
	}
	if len(d.earlier) != 0 || d.reads != 2 {
		t.Errorf("after some looks %d are remembered, and they were read %d times; want none, and twice", len(d.earlier), d.reads)
	}
}

// The kernel may be off for longer than the flows are remembered.
func TestASuccessorDeletesWhatItsPredecessorLeavesAlsoIfTheKernelIsOffMeanwhile(t *testing.T) {
	d := newDesk(t)
	d.Prepare()
	d.claim(dns, "dns", registry.Terms{})
	d.drops = errors.New("policy drop")
	for range 5 {
		d.look()
	}
	d.found = []flow{to("192.0.2.1:53", "10.0.0.1:53")}
	d.drops = nil
	d.look()
	if d.flushSome(); !slices.Equal(d.deleted(), flowsOf(dns, "10.0.0.1:53")) {
		t.Error("flows of the predecessor to an endpoint that is gone are left")
	}
}

func TestCloseDeletesTheFlowsThatNoSuccessorHas(t *testing.T) {
	own, node := at("10.0.0.9", dns), at("192.0.2.1", dns)
	all := append(flowsOf(own, "10.0.0.3:53"), flowsOf(node, "10.0.0.1:53", "10.0.0.2:53")...)
	for _, c := range []struct {
		name   string
		shared bool
		others []flow // that another process's table makes; nil: there is none
		asked  error  // why that is not known
		want   []flow
	}{
		{name: "a successor has a table, and looks after all", shared: true, others: []flow{}},
		{name: "a successor does without the kernel", shared: true, want: all},
		{name: "another process serves other ports", others: []flow{to("192.0.2.1:54", "10.0.0.1:53"), {web, all[0].endpoint}}, want: all},
		{name: "there is none", want: all},
		{
			name:   "a process has begun alone, and has the same ports",
			others: []flow{{dns, all[1].endpoint}, {own, all[0].endpoint}},
			want:   flowsOf(node, "10.0.0.2:53"),
		},
		{name: "a process has begun alone, and has one of them at an address", others: flowsOf(node, "10.0.0.1:53", "10.0.0.2:53"), want: all[:1]},
		{name: "it is not known what others have", asked: errors.New("no descriptors")},
	} {
		d := newDesk(t)
		d.Carrier.others = func() (map[flow]bool, error) {
			if !d.table().closed {
				t.Error("what begins after this question is not deleted")
			}
			if c.others == nil {
				return nil, c.asked
			}
			others := make(map[flow]bool)
			for _, f := range c.others {
				others[f] = true
			}
			return others, nil
		}
		d.check("node", "10.0.0.1:53")
		d.claim(dns, "node", registry.Terms{})
		d.put(dns, addresses("10.0.0.1:53", "10.0.0.2:53")...)
		d.claim(own, "own", registry.Terms{})
		d.put(own, addresses("10.0.0.3:53")...)
		d.Stop(c.shared)
		d.Claim(dns, nil) // its listener closes
		d.flushed = nil
		d.found = []flow{
			to("192.0.2.1:53", "10.0.0.1:53"), to("192.0.2.1:53", "10.0.0.2:53"), to("10.0.0.9:53", "10.0.0.3:53"),
			to("192.0.2.1:53", "10.0.0.7:53"), to("198.51.100.1:53", "10.0.0.1:53"), to("192.0.2.1:54", "10.0.0.1:53"), // of other programs
		}
		d.Close()
		if got := d.deleted(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v are deleted; want %v", c.name, got, c.want)
		}
		d.Close() // once more
		if got := d.deleted(); len(got) > 0 {
			t.Errorf("%s: %v are deleted twice", c.name, got)
		}
	}
}
