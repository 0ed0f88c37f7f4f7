package rotation

import (
	"net/netip"
	"slices"
	"testing"

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
