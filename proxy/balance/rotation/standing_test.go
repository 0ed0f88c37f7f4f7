package rotation

import (
	"iter"
	"net/netip"
	"slices"
	"testing"

	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

func TestADrainedEndpointOfAnotherTierKeepsItsClientsAndGetsNoNewOnes(t *testing.T) {
	r := placed(0, 0, registry.Backup, registry.Backup)
	drain := func(which ...int) {
		weights := make(map[registry.Addr]int)
		for _, i := range which {
			weights[addr(i)] = 0
		}
		r.Override(weights)
	}
	for _, c := range []struct {
		name           string
		drained        []int
		given, mayKeep []int
	}{
		{"none is drained", nil, []int{1, 2}, []int{1, 2}},
		{"one of two", []int{1}, []int{1, 2}, []int{1, 2}}, // its tier is in use, and its standing says that it is drained
		{"both", []int{1, 2}, []int{3, 4}, []int{1, 2, 3, 4}},
		{"a backup", []int{3}, []int{1, 2}, []int{1, 2, 3}},
		{"all", []int{1, 2, 3, 4}, []int{1, 2}, []int{1, 2, 3, 4}},
	} {
		drain(c.drained...)
		var given, mayKeep []int
		for a := range r.Standings(registry.UDP, netip.Addr{}) {
			given = append(given, slices.Index(addrs(1, 2, 3, 4), a)+1)
		}
		for a := range r.Keeping(registry.UDP, netip.Addr{}) {
			mayKeep = append(mayKeep, slices.Index(addrs(1, 2, 3, 4), a)+1)
		}
		if !slices.Equal(given, c.given) || !slices.Equal(mayKeep, c.mayKeep) {
			t.Errorf("%s: %v are given, and %v may keep clients; want %v and %v", c.name, given, mayKeep, c.given, c.mayKeep)
		}
	}
}

// Of a service with endpoints of both families, each family of clients has an order of its own. The node has clients of both.
func TestTheNodeIsGivenNoBackupWhileAnotherEndpointPassesThoughTheOtherFamilyHasNone(t *testing.T) {
	six := registry.Addr{IP: netip.MustParseAddrPort("[fd00::6]:80")}
	for _, c := range []struct {
		name   string
		places []registry.Place
		allows string // only these; "": all
		fails  []int  // endpoints whose checks fail
		want   []int
	}{
		{"all pass", []registry.Place{0, registry.Backup, 0}, "", nil, []int{1, 3}},
		{"that of IPv6 fails", []registry.Place{0, registry.Backup, 0}, "", []int{3}, []int{1}},
		{"that of IPv6 is not allowed", []registry.Place{0, registry.Backup, 0}, "10.0.0.0/8", nil, []int{1}},
		{"that of IPv6 fails, and one is farther", []registry.Place{inZone, outOfZone, inZone}, "", []int{3}, []int{1}},
		{"that of IPv4 fails", []registry.Place{0, registry.Backup, 0}, "", []int{1}, []int{3}},
		{"both fail", []registry.Place{0, registry.Backup, 0}, "", []int{1, 3}, []int{2}},
		{"all fail", []registry.Place{0, registry.Backup, 0}, "", []int{1, 2, 3}, []int{1, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !checks.Supported {
				t.Skip("nothing is checked on this system")
			}
			rules := NewRules(false)
			rules.Node = registry.Node{Name: "n", Zone: "z"}
			rules.Checker = checks.New(checks.Settings{}, nil, nil) // which does not run
			if c.allows != "" {
				rules.Allowed = []netip.Prefix{netip.MustParsePrefix(c.allows)}
			}
			r := New(rules, registry.PortKey{Name: web})
			all := []registry.Addr{addr(1), addr(2), six}
			i, list := -1, registry.PortAddrs{Addrs: registry.NewAddrs(all...)}
			list.Places = registry.PlacesOf(list.Addrs, func(registry.Addr) registry.Place { i++; return c.places[i] })
			r.Replace(list, "")
			r.SetTerms(&registry.Terms{Checks: registry.Check{Wanted: registry.CheckOn, Send: "ping"}}, health.ClientsOf(registry.UDP, false))
			for _, i := range c.fails {
				r.Endpoints()[i-1].adoptCheck(registry.UDP, checks.State{Known: true, Fails: true})
			}
			for which, each := range map[string]iter.Seq2[registry.Addr, health.Standing]{
				"given": r.Standings(registry.UDP, netip.Addr{}), "kept": r.Keeping(registry.UDP, netip.Addr{}),
			} {
				var got []int
				for a := range each {
					got = append(got, slices.Index(all, a)+1)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%s are %v; want %v", which, got, c.want)
				}
			}
		})
	}
}
