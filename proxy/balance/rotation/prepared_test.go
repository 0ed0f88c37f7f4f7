package rotation

import (
	"net/netip"
	"testing"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// manyAddrs are n addresses.
func manyAddrs(n int) registry.PortAddrs {
	var b registry.AddrsBuilder
	for i := range n {
		b.Add(registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80)})
	}
	return registry.PortAddrs{Addrs: b.Addrs()}
}

// TestTheFirstClientOfALargeSetFindsItReady: no event loop makes endpoints of thousands of addresses, sorts them into a roster or puts them
// on a ring.
func TestTheFirstClientOfALargeSetFindsItReady(t *testing.T) {
	bySource := &registry.Terms{Balance: registry.SourceAddress}
	for _, c := range []struct {
		name    string
		prepare func(*Rotation)
		ready   bool
		ring    bool
	}{
		{"endpoints, then a port", func(r *Rotation) {
			r.Replace(manyAddrs(large), "")
			r.SetTerms(registry.NoTerms, health.ClientsOf(registry.TCP, false))
		}, true, false},
		{"a port, then endpoints", func(r *Rotation) {
			r.SetTerms(registry.NoTerms, health.ClientsOf(registry.TCP, false))
			r.Replace(manyAddrs(large), "")
		}, true, false},
		{"an algorithm that needs a ring", func(r *Rotation) {
			r.Replace(manyAddrs(large), "")
			r.SetTerms(registry.NoTerms, health.ClientsOf(registry.TCP, false))
			r.SetTerms(bySource, health.ClientsOf(registry.TCP, false))
		}, true, true},
		{"other endpoints for a service that has clients", func(r *Rotation) {
			r.SetTerms(bySource, health.ClientsOf(registry.TCP, false))
			r.Replace(manyAddrs(1), "")
			c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
			c.Next()
			r.Replace(manyAddrs(large), "")
		}, true, true},
		{"a set that is not large", func(r *Rotation) {
			r.SetTerms(registry.NoTerms, health.ClientsOf(registry.TCP, false))
			r.Replace(manyAddrs(large-1), "")
		}, false, false},
		{"no port", func(r *Rotation) { r.Replace(manyAddrs(large), "") }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := New(NewRules(false), registry.PortKey{})
			c.prepare(r)
			set := r.set.Load()
			if is := !set.isAsleep(); is != c.ready {
				t.Fatalf("the set is ready: %v; want %v", is, c.ready)
			}
			for tier := range set.everyTier() {
				if is := tier.rosters[registry.TCP].Load() != nil; is != c.ready {
					t.Errorf("a tier has a roster: %v; want %v", is, c.ready)
				}
				if is := tier.ring.Load() != nil; is != c.ring {
					t.Errorf("a tier has a ring: %v; want %v", is, c.ring)
				}
			}
		})
	}
}

// TestLargeSetsThatAreReadyHaveABound: whoever writes records does not decide how much memory they take.
func TestLargeSetsThatAreReadyHaveABound(t *testing.T) {
	rules := NewRules(false)
	var all []*Rotation
	for range maxPrepared/large + 1 {
		r := New(rules, registry.PortKey{})
		r.SetTerms(registry.NoTerms, health.ClientsOf(registry.TCP, false))
		r.Replace(manyAddrs(large), "")
		all = append(all, r)
	}
	last := all[len(all)-1]
	if set := last.set.Load(); !set.isAsleep() {
		t.Errorf("%d endpoints of large sets are ready; want %d at most", rules.prepared.Load(), maxPrepared)
	}
	all[0].Replace(registry.PortAddrs{}, "")
	last.Replace(manyAddrs(large+1), "")
	if set := last.set.Load(); set.isAsleep() {
		t.Error("a large set sleeps though another one has made room for it")
	}
	for _, r := range all {
		r.SetTerms(registry.NoTerms, 0)
		r.Replace(registry.PortAddrs{}, "")
	}
	if n := rules.prepared.Load(); n != 0 {
		t.Errorf("%d endpoints count although there is none", n)
	}
}
