package kernel

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"testing"
	"time"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

// A standing is an endpoint and what is known of it.
type standing struct {
	addr string // or the name of a host, without a port
	is   health.Standing
}

func standings(all ...standing) iter.Seq2[registry.Addr, health.Standing] {
	return func(yield func(registry.Addr, health.Standing) bool) {
		for _, s := range all {
			addr := registry.Addr{Host: s.addr}
			if ip, err := netip.ParseAddrPort(s.addr); err == nil {
				addr = registry.Addr{IP: ip}
			}
			if !yield(addr, s.is) {
				return
			}
		}
	}
}

func sound(addrs ...string) (all []standing) {
	for _, a := range addrs {
		all = append(all, standing{a, health.Sound})
	}
	return all
}

// anywhere is a node that forwards both families, and refuses one address. Its own are 10.0.0.98 and those of 192.0.2.0/24.
func anywhere() *Node {
	return &Node{
		bind: netip.IPv4Unspecified(),
		Algorithm: func(b registry.Balance) registry.Balance {
			if b == registry.BalanceUnsaid {
				return registry.RoundRobin
			}
			return b
		},
		Refuse: func(_ registry.Protocol, addr netip.AddrPort) error {
			if addr.Addr() == netip.MustParseAddr("10.0.0.99") {
				return errors.New("refused")
			}
			return nil
		},
		IsLocal: func(addr netip.Addr) bool {
			return addr == netip.MustParseAddr("10.0.0.98") || netip.MustParsePrefix("192.0.2.0/24").Contains(addr)
		},
	}
}

// boundTo has the node have its ports at an address.
func boundTo(addr string) func(*Node) {
	return func(n *Node) { n.bind = netip.MustParseAddr(addr) }
}

func TestAPortIsCarriedOnlyWhereTheKernelCanDoWhatItWants(t *testing.T) {
	many := make([]string, maxEndpoints+1)
	for i := range many {
		many[i] = fmt.Sprintf("10.1.%d.%d:80", i/256, i%256)
	}
	checked := registry.Check{Wanted: registry.CheckOn, Interval: time.Second}
	for _, c := range []struct {
		name      string
		node      func(*Node)
		at        netip.Addr // of the port; none: the node
		terms     registry.Terms
		endpoints []standing
		want      Reason // Carried where endpoints are
		carried   []string
	}{
		{name: "two sound endpoints", endpoints: sound("10.0.0.1:80", "10.0.0.2:81"), carried: []string{"10.0.0.1:80", "10.0.0.2:81"}},
		{name: "checks are no hindrance", terms: registry.Terms{Checks: checked, Balance: registry.RoundRobin}, endpoints: sound("10.0.0.1:80"), carried: []string{"10.0.0.1:80"}},
		{name: "IPv6", endpoints: sound("[fd00::1]:80"), carried: []string{"[fd00::1]:80"}},
		{name: "an endpoint whose checks fail is left out", endpoints: append(sound("10.0.0.1:80"), standing{"10.0.0.2:80", health.Failing}), carried: []string{"10.0.0.1:80"}},
		{name: "all checks fail", endpoints: []standing{{"10.0.0.2:80", health.Failing}}, want: NoEndpoints},
		{name: "no endpoints", want: NoEndpoints},
		{name: "one is not checked", endpoints: append(sound("10.0.0.1:80"), standing{"10.0.0.2:80", health.Unchecked}), want: NotChecked},
		{name: "one was not checked yet", endpoints: append(sound("10.0.0.1:80"), standing{"10.0.0.2:80", health.Awaited}), want: NotCheckedYet},
		{name: "the checks of one are overdue", endpoints: append(sound("10.0.0.1:80"), standing{"10.0.0.2:80", health.Overdue}), want: Overdue},
		{name: "one is in doubt", endpoints: append(sound("10.0.0.1:80"), standing{"10.0.0.2:80", health.Doubtful}), want: InDoubt},
		{name: "one has refused", endpoints: append(sound("10.0.0.1:80"), standing{"10.0.0.2:80", health.Unsettled}), want: InDoubt},
		{name: "a weight", endpoints: append(sound("10.0.0.1:80"), standing{"10.0.0.2:80", health.Weighted}), want: Weights},
		{name: "a weight for a while", endpoints: append(sound("10.0.0.1:80"), standing{"10.0.0.2:80", health.Overridden}), want: Overridden},
		{name: "a host name", endpoints: sound("web.example"), want: Address},
		{name: "the loopback", endpoints: sound("127.0.0.1:80"), want: Address},
		{name: "the loopback of IPv6", endpoints: sound("[::1]:80"), want: Address},
		{name: "a link-local address", endpoints: sound("[fe80::1]:80"), want: Address},
		{name: "an address of the node", endpoints: sound("10.0.0.1:80", "10.0.0.98:80"), want: Address},
		{name: "an address of the node in its IPv6 spelling", endpoints: sound("[::ffff:10.0.0.98]:80"), want: Address},
		{name: "an address that must not be dialled", endpoints: sound("10.0.0.99:80"), want: Address},
		{name: "both families", endpoints: sound("10.0.0.1:80", "[fd00::1]:80"), want: Families},
		{name: "an address of the other family", at: netip.MustParseAddr("fd00::9"), endpoints: sound("10.0.0.1:80"), want: Families},
		{name: "the node has its ports at an address of the other family", node: boundTo("fd00::9"), endpoints: sound("10.0.0.1:80"), want: Families},
		{name: "the node has its ports at an address of the same family", node: boundTo("10.0.0.9"), endpoints: sound("10.0.0.1:80"), carried: []string{"10.0.0.1:80"}},
		{name: "a port of an address whose family the node has no ports of", node: boundTo("fd00::9"), at: netip.MustParseAddr("10.0.0.9"), endpoints: sound("10.0.0.1:80"), carried: []string{"10.0.0.1:80"}},
		{name: "the node has its ports at all addresses", node: boundTo("::"), endpoints: sound("10.0.0.1:80"), carried: []string{"10.0.0.1:80"}},
		{name: "an address of the loopback", at: netip.MustParseAddr("127.0.0.9"), endpoints: sound("10.0.0.1:80"), want: Addresses},
		{name: "a link-local address", at: netip.MustParseAddr("169.254.0.9"), endpoints: sound("10.0.0.1:80"), want: Addresses},
		{name: "an IPv4 address in its IPv6 spelling", endpoints: sound("[::ffff:10.0.0.1]:80"), carried: []string{"10.0.0.1:80"}},
		{name: "too many", endpoints: sound(many...), want: TooMany},
		{name: "as many as there may be", endpoints: sound(many[1:]...), carried: many[1:]},
		{name: "affinity", terms: registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: time.Hour}, endpoints: sound("10.0.0.1:80"), want: Terms},
		{name: "source ranges", terms: registry.Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, endpoints: sound("10.0.0.1:80"), want: Terms},
		{name: "a PROXY header", terms: registry.Terms{ProxyHeader: registry.ProxyV2}, endpoints: sound("10.0.0.1:80"), want: Terms},
		{name: "another algorithm", terms: registry.Terms{Balance: registry.LeastConnections}, endpoints: sound("10.0.0.1:80"), want: Terms},
		{name: "another algorithm by default", node: func(n *Node) {
			n.Algorithm = func(registry.Balance) registry.Balance { return registry.SourceAddress }
		}, endpoints: sound("10.0.0.1:80"), want: Terms},
		{name: "connections end with their endpoint", terms: registry.Terms{Removal: registry.Removal{Rule: registry.RemovalClose}}, endpoints: sound("10.0.0.1:80"), want: Terms},
		{name: "connections outlive their endpoint", node: func(n *Node) { n.OnRemoval.Close = true },
			terms: registry.Terms{Removal: registry.Removal{Rule: registry.RemovalDrain}}, endpoints: sound("10.0.0.1:80"), carried: []string{"10.0.0.1:80"}},
		{name: "connections end with their endpoint by a flag", node: func(n *Node) { n.OnRemoval.Close = true }, endpoints: sound("10.0.0.1:80"), want: ByFlag},
		{name: "a key elects", terms: registry.Terms{HolderKey: "/lock"}, endpoints: sound("10.0.0.1:80"), carried: []string{"10.0.0.1:80"}},
		{name: "replicas of Patroni", terms: registry.Terms{HolderKey: "/service/pg/", Patroni: patroni.Terms{Scope: "pg", Replicas: true}}, endpoints: sound("10.0.0.1:80"), carried: []string{"10.0.0.1:80"}},
		{name: "a limit of connections", node: func(n *Node) { n.Bound[registry.TCP] = true }, endpoints: sound("10.0.0.1:80"), want: ByFlag},
		{name: "a limit of sessions", node: func(n *Node) { n.Bound[registry.UDP] = true }, endpoints: sound("10.0.0.1:80"), carried: []string{"10.0.0.1:80"}},
		{name: "no forwarding of IPv6", node: func(n *Node) { n.Forwards[1] = errors.New("not forwarded") }, endpoints: sound("[fd00::1]:80"), want: NotForwarded},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := anywhere()
			if c.node != nil {
				c.node(n)
			}
			endpoints, got := n.Judge(registry.ListenerID{Addr: c.at, Protocol: registry.TCP}, &c.terms, standings(c.endpoints...))
			var carried []string
			for _, e := range endpoints {
				carried = append(carried, e.String())
			}
			if c.carried != nil {
				c.want = Carried
			}
			if got != c.want || !slices.Equal(carried, c.carried) {
				t.Errorf("got %v and %.100q; want %v and %.100q", got, carried, c.want, c.carried)
			}
		})
	}
}

func TestUDPFlowsGoOnToEndpointsThatNothingSpeaksAgainst(t *testing.T) {
	others := []standing{{"10.0.0.2:53", health.Unsettled}, {"10.0.0.3:53", health.Failing}, {"10.0.0.4:53", health.Unchecked},
		{"10.0.0.98:53", health.Sound}, {"10.0.0.99:53", health.Sound}, {"web.example", health.Sound}, {"10.0.0.6:53", health.Sound}}
	has := func(e netip.AddrPort) bool { return e != netip.MustParseAddrPort("10.0.0.6:53") }
	for _, c := range []struct {
		name  string
		is    health.Standing
		node  func(*Node)
		terms registry.Terms
		goOn  bool
	}{
		{name: "sound", is: health.Sound, goOn: true},
		{name: "its checks are overdue", is: health.Overdue, goOn: true},
		{name: "a check was not answered", is: health.Doubtful, goOn: true},
		{name: "it is asked another question from now on", is: health.Awaited, goOn: true},
		{name: "it gets another share of clients", is: health.Weighted, goOn: true},
		{name: "it gets another share for a while", is: health.Overridden, goOn: true},
		{name: "its service wants what the kernel cannot do", is: health.Sound, terms: registry.Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
		{name: "a limit of sessions", is: health.Sound, node: func(n *Node) { n.Bound[registry.UDP] = true }},
		{name: "no forwarding", is: health.Sound, node: func(n *Node) { n.Forwards[0] = errors.New("not forwarded") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := anywhere()
			if c.node != nil {
				c.node(n)
			}
			stay := n.Stay(&c.terms, standings(append(others, standing{"10.0.0.1:53", c.is})...), has)
			if goOn := slices.Equal(stay, addresses("10.0.0.1:53")); goOn != c.goOn || !goOn && len(stay) > 0 {
				t.Errorf("flows go on to %v; want those to 10.0.0.1:53: %t", stay, c.goOn)
			}
		})
	}
}

func addresses(all ...string) (parsed []netip.AddrPort) {
	for _, a := range all {
		parsed = append(parsed, netip.MustParseAddrPort(a))
	}
	return parsed
}

func TestAnEndpointThatLeavesGivesItsNumberToAnother(t *testing.T) {
	const a, b, c, d = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"
	for _, x := range []struct {
		name                 string
		before, wanted, want []string
		gone, come           int
		recounts             bool
	}{
		{"all are new", nil, []string{a, b}, []string{a, b}, 0, 2, true},
		{"none is left", []string{a, b}, nil, nil, 2, 0, true},
		{"nothing changes", []string{a, b}, []string{a, b}, []string{a, b}, 0, 0, false},
		{"another order", []string{a, b}, []string{b, a}, []string{a, b}, 0, 0, false},
		{"the first of four leaves", []string{a, b, c, d}, []string{b, c, d}, []string{d, b, c}, 2, 1, true},
		{"the last of three leaves", []string{a, b, c}, []string{a, b}, []string{a, b}, 1, 0, true},
		{"one takes the place of another", []string{a, b, c}, []string{a, d, c}, []string{a, d, c}, 1, 1, false},
		{"one more", []string{a, b}, []string{a, b, c}, []string{a, b, c}, 0, 1, true},
		{"another family", []string{a}, []string{"[fd00::1]:80"}, []string{"[fd00::1]:80"}, 1, 1, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			change := change{before: addresses(x.before...), after: fill(addresses(x.before...), addresses(x.wanted...))}
			if !slices.Equal(change.after, addresses(x.want...)) {
				t.Errorf("got %v; want %v", change.after, x.want)
			}
			gone, come := change.differences()
			if len(gone) != x.gone || len(come) != x.come || change.recounts() != x.recounts {
				t.Errorf("%v go, %v come, recounts: %v; want %d, %d, %v", gone, come, change.recounts(), x.gone, x.come, x.recounts)
			}
		})
	}
}

func TestTheSendersOfAPortAreItsEndpointsOverUDP(t *testing.T) {
	for _, x := range []struct {
		name          string
		id            registry.ListenerID
		before, after []string
		gone, come    []string
	}{
		{"over TCP none", web, nil, []string{"10.0.0.1:80"}, nil, nil},
		{"an endpoint", dns, nil, []string{"10.0.0.1:5353"}, nil, []string{"10.0.0.1:5353"}},
		{"two of an address, at the port of the service", dns, nil, []string{"10.0.0.1:53", "10.0.0.1:5353"}, nil, []string{"10.0.0.1:0", "10.0.0.1:5353"}},
		{"one leaves, and one stays", dns, []string{"10.0.0.1:5353", "10.0.0.2:53"}, []string{"10.0.0.2:53"}, []string{"10.0.0.1:5353"}, nil},
		{"all leave", dns, []string{"10.0.0.1:5353", "[fd00::1]:53"}, nil, []string{"10.0.0.1:5353", "[fd00::1]:0"}, nil},
	} {
		gone, come := (&change{id: x.id, before: addresses(x.before...), after: addresses(x.after...)}).senders()
		for _, got := range [][]netip.AddrPort{gone, come} {
			slices.SortFunc(got, netip.AddrPort.Compare)
		}
		if !slices.Equal(gone, addresses(x.gone...)) || !slices.Equal(come, addresses(x.come...)) {
			t.Errorf("%s: %v go, %v come; want %v, %v", x.name, gone, come, x.gone, x.come)
		}
	}
}

func TestEachReasonHasACodeOfItsOwn(t *testing.T) {
	codes := make(map[string]Reason)
	for _, r := range Reasons() {
		if other, ok := codes[r.String()]; ok || r.String() == "" {
			t.Errorf("reasons %d and %d are both %q", other, r, r)
		}
		codes[r.String()] = r
	}
}
