package registry

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestAListGivesTheAddressesThatWerePutIn(t *testing.T) {
	all := []Addr{
		{IP: netip.MustParseAddrPort("10.0.0.1:80")},
		{IP: netip.MustParseAddrPort("[2001:db8::1]:65535")},
		{IP: netip.MustParseAddrPort("[fe80::1%eth0.100]:1")},
		{IP: netip.MustParseAddrPort("[::ffff:10.0.0.1]:80")}, // which no record gives
		{IP: netip.AddrPortFrom(netip.Addr{}, 80), Host: "web-1.example.internal"},
		{IP: netip.AddrPortFrom(netip.Addr{}, 80), Host: strings.Repeat("h", 254)},
		{},
	}
	for n := range len(all) + 1 {
		for first := range len(all) - n + 1 {
			list := NewAddrs(all[first : first+n]...)
			if got := slices.Collect(list.All()); !slices.Equal(got, all[first:first+n]) || list.Len() != n {
				t.Errorf("%d: %v; want %v", list.Len(), got, all[first:first+n])
			}
		}
	}
	if got, want := NewAddrs(all...).String(), fmt.Sprint(all); got != want {
		t.Errorf("%s; want %s", got, want)
	}
	for range NewAddrs(all...).All() {
		break // and no further
	}
}

func TestListsAreEqualWhenTheySayTheSame(t *testing.T) {
	v4, v6, name := Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, Addr{IP: netip.MustParseAddrPort("[2001:db8::1]:80")}, Addr{Host: "10.0.0.1"}
	lists := [][]Addr{{}, {v4}, {v6}, {name}, {v4, v6}, {v6, v4}, {v4, v4}, {v4, name}}
	for i, a := range lists {
		for j, b := range lists {
			if equal := NewAddrs(a...) == NewAddrs(b...); equal != (i == j) {
				t.Errorf("%v and %v: equal is %t", a, b, equal)
			}
		}
	}
	if NewAddrs() != (Addrs{}) {
		t.Error("the empty list is not the zero one")
	}
}

func TestAnIPv4AddressTakesEightBytes(t *testing.T) {
	list := NewAddrs(Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")})
	if len(list.packed) != packedIPv4 {
		t.Errorf("%d bytes", len(list.packed))
	}
}
