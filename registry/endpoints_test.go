package registry

import (
	"net/netip"
	"testing"
)

func TestEqualEndpointsAreInTheSameOrder(t *testing.T) {
	a, b := Addr{IP: netip.MustParseAddrPort("10.0.0.1:1")}, Addr{IP: netip.MustParseAddrPort("10.0.0.2:1")}
	make := func(name string, byPort []PortAddrs) *Endpoints {
		return &Endpoints{Name{"default", name}, byPort, ""}
	}
	base := make("x", []PortAddrs{{"p", NewAddrs(a, b)}, {"q", NewAddrs(a)}})
	if !base.Equal(make("x", []PortAddrs{{"p", NewAddrs(a, b)}, {"q", NewAddrs(a)}})) {
		t.Error("not equal to its like")
	}
	if !make("x", nil).Equal(make("x", []PortAddrs{})) {
		t.Error("without ports there is nothing to tell apart")
	}
	for what, other := range map[string]*Endpoints{
		"name":     make("y", base.ByPort),
		"order":    make("x", []PortAddrs{{"p", NewAddrs(b, a)}, {"q", NewAddrs(a)}}),
		"address":  make("x", []PortAddrs{{"p", NewAddrs(a, b)}, {"q", NewAddrs(b)}}),
		"ports":    make("x", []PortAddrs{{"p", NewAddrs(a, b)}, {"r", NewAddrs(a)}}),
		"fewer":    make("x", []PortAddrs{{"p", NewAddrs(a, b)}}),
		"nil":      nil,
		"all gone": make("x", nil),
	} {
		if base.Equal(other) || other.Equal(base) {
			t.Errorf("equal in spite of another: %s", what)
		}
	}
	var none *Endpoints
	if !none.Equal(nil) {
		t.Error("nil is equal to nil")
	}
}
