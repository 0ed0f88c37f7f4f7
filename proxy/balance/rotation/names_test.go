package rotation

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"kubeproxy/registry"
)

// addressesOf returns addresses of a name, the last bytes of which are ns: those of IPv6 first.
func addressesOf(v6, v4 []byte) (addrs []netip.AddrPort) {
	for _, n := range v6 {
		addrs = append(addrs, netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0xfd, 15: n}), 80))
	}
	for _, n := range v4 {
		addrs = append(addrs, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 80))
	}
	return addrs
}

// arranged returns the order in which a client tries them.
func arranged(r *Rotation, client netip.Addr, terms registry.Terms, addrs []netip.AddrPort) (order []string) {
	c := r.ChooseFor(registry.TCP, client, &terms, nil)
	e, _ := c.Next()
	for _, a := range c.Arrange(e, addrs) {
		order = append(order, a.Addr().String())
	}
	return order
}

func TestTheAddressesOfANameTakeTurnsAndFamiliesAlternate(t *testing.T) {
	r := numbered(1)
	addrs := addressesOf([]byte{1, 2, 3}, []byte{1})
	for i, want := range []string{
		"[fd00::1 10.0.0.1 fd00::2 fd00::3]", "[fd00::2 10.0.0.1 fd00::3 fd00::1]", "[fd00::3 10.0.0.1 fd00::1 fd00::2]", "[fd00::1 10.0.0.1 fd00::2 fd00::3]",
	} {
		if got := fmt.Sprint(arranged(r, person(i), registry.Terms{}, addrs)); got != want {
			t.Errorf("client %d tries %v; want %v", i, got, want)
		}
	}
	many := addressesOf([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, []byte{1, 2})
	if got := arranged(r, person(1), registry.Terms{}, many); len(got) != maxAddrs || !slices.Contains(got, "10.0.0.1") {
		t.Errorf("of 14 addresses a client tries %v", got)
	}
	if got := arranged(r, person(1), registry.Terms{}, many[:1]); len(got) != 1 {
		t.Errorf("of one address a client tries %v", got)
	}
}

// All nodes know the same addresses, in the same order or not; so they give a client the same one, and those of another leave it where it is.
func TestAClientWhoseAddressDecidesIsGivenTheSameAddressOfANameByEveryNode(t *testing.T) {
	for _, terms := range []registry.Terms{{Balance: registry.SourceAddress}, {AffinityTimeout: time.Hour}} {
		one, other := rotationBy(NewRules(true), addr(1)), rotationBy(NewRules(true), addr(1))
		of := make(map[string]int)
		for i := range 300 {
			all, reversed, fewer := addressesOf(nil, []byte{1, 2, 3}), addressesOf(nil, []byte{3, 2, 1}), addressesOf(nil, []byte{1, 2})
			a, b := arranged(one, person(i), terms, all), arranged(other, person(i), terms, reversed)
			if !slices.Equal(a, b) {
				t.Fatalf("two nodes give client %d the addresses %v and %v", i, a, b)
			}
			if c := arranged(one, person(i), terms, fewer); a[0] != "10.0.0.3" && c[0] != a[0] {
				t.Errorf("client %d went from %s to %s when another address left", i, a[0], c[0])
			}
			of[a[0]]++
		}
		for _, n := range of {
			if len(of) != 3 || n < 70 || n > 130 {
				t.Errorf("300 clients were given %v; want about 100 each", of)
			}
		}
	}
}

func TestAFleetDoesNotHerdOnTheFirstAddressOfAName(t *testing.T) {
	first := make(map[string]bool)
	for range 100 {
		first[arranged(rotationBy(NewRules(true), addr(1)), person(1), registry.Terms{}, addressesOf(nil, []byte{1, 2, 3}))[0]] = true
	}
	if len(first) != 3 { // 100 starts all alike for one of three: once in 10^17 runs
		t.Errorf("the first clients of 100 nodes were given only %v", first)
	}
}
