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
	base := make("x", []PortAddrs{{Port: "p", Addrs: NewAddrs(a, b)}, {Port: "q", Addrs: NewAddrs(a)}})
	if !base.Equal(make("x", []PortAddrs{{Port: "p", Addrs: NewAddrs(a, b)}, {Port: "q", Addrs: NewAddrs(a)}})) {
		t.Error("not equal to its like")
	}
	if !make("x", nil).Equal(make("x", []PortAddrs{})) {
		t.Error("without ports there is nothing to tell apart")
	}
	for what, other := range map[string]*Endpoints{
		"name":     make("y", base.ByPort),
		"order":    make("x", []PortAddrs{{Port: "p", Addrs: NewAddrs(b, a)}, {Port: "q", Addrs: NewAddrs(a)}}),
		"address":  make("x", []PortAddrs{{Port: "p", Addrs: NewAddrs(a, b)}, {Port: "q", Addrs: NewAddrs(b)}}),
		"ports":    make("x", []PortAddrs{{Port: "p", Addrs: NewAddrs(a, b)}, {Port: "r", Addrs: NewAddrs(a)}}),
		"fewer":    make("x", []PortAddrs{{Port: "p", Addrs: NewAddrs(a, b)}}),
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
