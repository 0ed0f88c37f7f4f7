package registry

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// someAddrs are the addresses of one port.
func someAddrs(port string, texts ...string) []PortAddrs {
	var addrs []Addr
	for _, text := range texts {
		a, err := ParseAddr(text)
		if err != nil {
			panic(err)
		}
		addrs = append(addrs, a)
	}
	return []PortAddrs{{Port: port, Addrs: NewAddrs(addrs...)}}
}

// byPort gives endpoints as text, to compare with.
func byPort(e *Endpoints) map[string]string {
	m := make(map[string]string)
	for _, p := range e.ByPort {
		m[p.Port] = strings.Trim(p.Addrs.String(), "[]")
	}
	return m
}

func TestSlicesOfAServiceAddUp(t *testing.T) {
	ready := func(byPort ...[]PortAddrs) *EndpointSlice { return &EndpointSlice{Ready: slices.Concat(byPort...)} }
	for _, c := range []struct {
		name   string
		slices []*EndpointSlice
		want   map[string]string
	}{
		{"none of them has any", []*EndpointSlice{{}, {}}, map[string]string{}},
		{"one", []*EndpointSlice{ready(someAddrs("a", "10.0.0.1:1"))}, map[string]string{"a": "10.0.0.1:1"}},
		{"sorted, each once", []*EndpointSlice{ready(someAddrs("", "10.0.0.2:1", "[fd00::1]:1")), ready(someAddrs("", "10.0.0.1:1", "10.0.0.2:1", "web:1"))},
			map[string]string{"": "10.0.0.1:1 10.0.0.2:1 [fd00::1]:1 web:1"}},
		{"ports for themselves", []*EndpointSlice{ready(someAddrs("a", "10.0.0.2:1"), someAddrs("b", "10.0.0.2:2")), ready(someAddrs("b", "10.0.0.1:2"))},
			map[string]string{"a": "10.0.0.2:1", "b": "10.0.0.1:2 10.0.0.2:2"}},
		{"terminating alone", []*EndpointSlice{{Terminating: someAddrs("", "10.0.0.1:1")}}, map[string]string{"": "10.0.0.1:1"}},
		{"terminating in all slices", []*EndpointSlice{{Terminating: someAddrs("", "10.0.0.2:1")}, {Terminating: someAddrs("", "10.0.0.1:1")}},
			map[string]string{"": "10.0.0.1:1 10.0.0.2:1"}},
		{"terminating beside a ready one of its own slice", []*EndpointSlice{{Ready: someAddrs("", "10.0.0.1:1"), Terminating: someAddrs("", "10.0.0.2:1")}},
			map[string]string{"": "10.0.0.1:1"}},
		{"terminating beside a ready one of another slice", []*EndpointSlice{{Terminating: someAddrs("", "10.0.0.2:1")}, ready(someAddrs("", "10.0.0.1:1"))},
			map[string]string{"": "10.0.0.1:1"}},
		{"terminating, and another port has a ready one", []*EndpointSlice{{Terminating: someAddrs("a", "10.0.0.2:1")}, ready(someAddrs("b", "10.0.0.1:1"))},
			map[string]string{"a": "10.0.0.2:1", "b": "10.0.0.1:1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 {
				e, warning := JoinSlices(Name{"default", "x"}, c.slices)
				if diff := cmp.Diff(c.want, byPort(e)); diff != "" || warning != "" || e.Name != (Name{"default", "x"}) {
					t.Errorf("%v, warning %q (-want +got):\n%s", e.Name, warning, diff)
				}
				if !slices.IsSortedFunc(e.ByPort, func(p, q PortAddrs) int { return strings.Compare(p.Port, q.Port) }) {
					t.Errorf("ports are not sorted: %v", e.ByPort)
				}
				slices.Reverse(c.slices) // makes no difference
			}
		})
	}
}

func TestWhatSlicesAddUpToIsBounded(t *testing.T) {
	var addrs []Addr
	for i := range MaxJoined / 4 {
		a, err := ParseAddr("h" + strings.Repeat("0", 10) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + string(rune('a'+i/17576)) + ":1")
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, Addr.Compare)
	quarter := &EndpointSlice{Ready: []PortAddrs{{Port: "a", Addrs: NewAddrs(addrs...)}}}
	if _, warning := JoinSlices(Name{}, []*EndpointSlice{quarter, quarter, quarter, quarter}); warning != "" {
		t.Errorf("as many as there may be: %s", warning)
	}
	last := &EndpointSlice{Ready: someAddrs("b", "10.0.0.1:1")}
	e, warning := JoinSlices(Name{}, []*EndpointSlice{quarter, quarter, quarter, quarter, last, last})
	if want := Warning("its endpoint slices list more than 131072 endpoints: 2 of the 6 slices are left out"); warning != want || e.Of("a").Len() != len(addrs) || e.Of("b").Len() != 0 {
		t.Errorf("%d and %d addresses, warning %q; want %q", e.Of("a").Len(), e.Of("b").Len(), warning, want)
	}
}

func TestASliceThatIsLargerThanAllMayBeIsUsedWithoutTheOthers(t *testing.T) {
	addrs := make([]Addr, MaxJoined/2)
	for i := range addrs {
		addrs[i] = Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)}
	}
	half := NewAddrs(addrs...)
	large := &EndpointSlice{Ready: []PortAddrs{{Port: "a", Addrs: half}, {Port: "b", Addrs: half}, {Port: "c", Addrs: half}}}
	e, warning := JoinSlices(Name{}, []*EndpointSlice{large, {Ready: someAddrs("d", "10.0.0.1:1")}})
	if want := Warning("its endpoint slices list more than 131072 endpoints: 1 of the 2 slices are left out"); warning != want || e.Of("c").Len() != len(addrs) || e.Of("d").Len() != 0 {
		t.Errorf("%d and %d addresses, warning %q; want %q", e.Of("c").Len(), e.Of("d").Len(), warning, want)
	}
}
