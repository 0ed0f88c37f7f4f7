package registry

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// slice is the record of a slice of a service, with some fields.
func slice(service, fields string) string {
	return `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"x-1","labels":{"kubernetes.io/service-name":"` + service + `"}},` + fields + `}`
}

// sliceSeeds are the slices that Kubernetes has stored as JSON, for a fuzzer.
func sliceSeeds(t testing.TB) (values [][]byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "captured", "kubernetes-1.36", "json*", "endpointslices--*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captured slices: %v", err)
	}
	for _, file := range files {
		value, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	return append(values, []byte(slice("x", `"addressType":"FQDN","endpoints":[{"addresses":["web"]}],"ports":[{"name":"a","port":1},{"name":"a","port":2}]`)))
}

func TestEndpointsOfASlice(t *testing.T) {
	const ports = `"ports":[{"name":"","protocol":"TCP","port":80}]`
	for _, c := range []struct{ name, fields, want string }{
		{"two, sorted", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.2"]},{"addresses":["10.0.0.1"]}],` + ports, "of x /[10.0.0.1:80 10.0.0.2:80]"},
		{"the same one twice", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.1"]}],` + ports, "of x /[10.0.0.1:80]"},
		{"null", `"addressType":"IPv4","endpoints":null,"ports":null`, "of x"},
		{"neither field", `"addressType":"IPv4"`, "of x"},
		{"endpoints without ports", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[]`, "of x"},
		{"IPv6", `"addressType":"IPv6","endpoints":[{"addresses":["fd00::2"]}],` + ports, "of x /[[fd00::2]:80]"},
		{"host names", `"addressType":"FQDN","endpoints":[{"addresses":["web.example"]}],` + ports, "of x /[web.example:80]"},
		{"addresses of 1.16", `"addressType":"IP","endpoints":[{"addresses":["fd00::2"]},{"addresses":["10.0.0.1"]}],` + ports, "of x /[10.0.0.1:80 [fd00::2]:80]"},
		{"each with each, by name", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.2"]},{"addresses":["10.0.0.1"]}],
			"ports":[{"name":"b","port":2},{"name":"a","port":1},{"name":"b","port":1},{"name":"b","port":2}]`,
			"of x a/[10.0.0.1:1 10.0.0.2:1] b/[10.0.0.1:1 10.0.0.1:2 10.0.0.2:1 10.0.0.2:2]"},
		{"conditions", `"addressType":"IPv4","endpoints":[
			{"addresses":["10.0.0.1"],"conditions":{"ready":true,"serving":true,"terminating":false}},
			{"addresses":["10.0.0.2"],"conditions":{"ready":false,"serving":true,"terminating":true}},
			{"addresses":["10.0.0.3"],"conditions":{"ready":false,"serving":false,"terminating":true}},
			{"addresses":["10.0.0.4"],"conditions":{"ready":false,"serving":true,"terminating":false}},
			{"addresses":["10.0.0.5"],"conditions":{"ready":false}},
			{"addresses":["10.0.0.6"],"conditions":{"ready":false,"terminating":true}},
			{"addresses":["10.0.0.7"],"conditions":{"ready":true,"serving":false,"terminating":true}},
			{"addresses":["10.0.0.8"],"conditions":{}},
			{"addresses":["10.0.0.9"],"conditions":null}],` + ports,
			"of x /[10.0.0.1:80 10.0.0.7:80 10.0.0.8:80 10.0.0.9:80] terminating /[10.0.0.2:80 10.0.0.6:80]"},
		{"repeated fields", `"addressType":"IPv6","addressType":"IPv4","endpoints":[{"addresses":["10.0.0.9"]}],"endpoints":[
			{"addresses":["a"],"addresses":["10.0.0.1"],"conditions":{"ready":false},"conditions":{"terminating":true}}],` + ports, "of x /[10.0.0.1:80]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := decodeTo(t, sliceKey, slice("x", c.fields))
			if warnings != "" || r.Dropped != 0 {
				t.Errorf("%d dropped, warnings %q", r.Dropped, warnings)
			}
			if got := summary(r); got != "EndpointSlice x-1: "+c.want {
				t.Errorf("%s\n got %s\nwant EndpointSlice x-1: %s", c.fields, got, c.want)
			}
		})
	}
}

func TestUnusableEntriesOfASliceCostOnlyThemselves(t *testing.T) {
	for _, c := range []struct {
		name, fields string
		dropped      int
		kept, said   string
	}{
		{"another family", `"addressType":"IPv4","endpoints":[{"addresses":["fd00::1"]},{"addresses":["10.0.0.1"]}],"ports":[{"port":80}]`, 1,
			"/[10.0.0.1:80]", `unusable endpoint left out: "fd00::1" (not an IPv4 address)`},
		{"and the other way", `"addressType":"IPv6","endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["fd00::1"]},{"addresses":["web"]}],"ports":[{"port":80}]`, 2,
			"/[[fd00::1]:80]", `2 unusable endpoints left out: "10.0.0.1" (not an IPv6 address), "web" (not an IPv6 address)`},
		{"neither name nor address", `"addressType":"FQDN","endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["-"]},{"addresses":[]},{}],"ports":[{"port":80}]`, 4,
			"", `4 unusable endpoints left out, among them "10.0.0.1" (not a host name), "-" (neither an address nor a host name), "" (no address)`},
		{"nobody asks what is not ready", `"addressType":"IPv4","endpoints":[{"addresses":["-"],"conditions":{"ready":false}}],"ports":[{"port":80}]`, 0, "", ""},
		{"a port for all ports", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"a"},{"name":"b","port":1}]`, 1,
			"b/[10.0.0.1:1]", `unusable endpoint left out: "a" (no port number)`},
		{"an unknown protocol", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"a","port":1,"protocol":"QUIC"},{"name":"b","port":1,"protocol":"udp"}]`, 1,
			"b/[10.0.0.1:1]", `unusable endpoint left out: "a" (unsupported protocol "QUIC")`},
		{"SCTP", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"a","port":1,"protocol":"SCTP"},{"name":"b","port":1}]`, 0,
			"b/[10.0.0.1:1]", `SCTP is not supported, and these ports are left out: 1`},
		{"more addresses than one", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1","10.0.0.2","10.0.0.3"]}],"ports":[{"port":80}]`, 0,
			"/[10.0.0.1:80]", `addresses beyond the first of their endpoint are ignored: 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := decodeTo(t, sliceKey, slice("x", c.fields))
			if r.Dropped != c.dropped || warnings != c.said {
				t.Errorf("%d dropped: %s\nwant %d: %s", r.Dropped, warnings, c.dropped, c.said)
			}
			if got, want := summary(r), strings.TrimSuffix("EndpointSlice x-1: of x "+c.kept, " "); got != want {
				t.Errorf(" got %s\nwant %s", got, want)
			}
		})
	}
}

// Kubernetes' own proxy selects by these labels, too.
func TestLabelsExcludeServicesAndSlicesFromTheProxy(t *testing.T) {
	for _, c := range []struct{ name, key, value, want string }{
		{"service of another proxy", specKey, `{"apiVersion":"v1","metadata":{"labels":{"service.kubernetes.io/service-proxy-name":"other"}},"spec":{"ports":[{"port":80}]}}`,
			"Service x: affinity None"},
		{"flat", specKey, `{"labels":{"a":"b","service.kubernetes.io\/service-proxy-name":null},"port":80}`, "Service x: affinity None"},
		{"in another letter case", specKey, `{"labels":{"Service.kubernetes.io/service-proxy-name":""},"port":80}`, "Service x: /tcp/80 affinity None"},
		{"in the other form", specKey, `{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":""}},"port":80}`, "Service x: /tcp/80 affinity None"},
		{"labels that are none", specKey, `{"labels":["service.kubernetes.io/service-proxy-name"],"port":80}`, "Service x: /tcp/80 affinity None"},
		{"slice of another proxy", sliceKey, `{"metadata":{"labels":{"kubernetes.io/service-name":"x","service.kubernetes.io/service-proxy-name":""}},"addressType":"?"}`,
			"EndpointSlice x-1: of "},
		{"slice of a headless service", sliceKey, `{"metadata":{"labels":{"service.kubernetes.io/headless":""}},"endpoints":5}`, "EndpointSlice x-1: of "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r, warnings := decodeTo(t, c.key, c.value); summary(r) != c.want || warnings != "" {
				t.Errorf("%s\n got %s\nwant %s, warnings %q", c.value, summary(r), c.want, warnings)
			}
		})
	}
}

func TestSlicesAreEqualWhenTheySayTheSame(t *testing.T) {
	base := func(edit func(*EndpointSlice)) *EndpointSlice {
		s := &EndpointSlice{Name{"default", "x-1"}, "x", someAddrs("", "10.0.0.1:1"), someAddrs("", "10.0.0.2:1")}
		edit(s)
		return s
	}
	same := base(func(*EndpointSlice) {})
	if other := base(func(*EndpointSlice) {}); !same.Equal(other) {
		t.Errorf("%v is not equal to %v", same, other)
	}
	var none *EndpointSlice
	if !none.Equal(nil) || same.Equal(nil) || none.Equal(same) {
		t.Error("nil is equal to nil only")
	}
	for what, other := range map[string]*EndpointSlice{
		"name":        base(func(s *EndpointSlice) { s.Name.Name = "x-2" }),
		"service":     base(func(s *EndpointSlice) { s.Service = "y" }),
		"ready":       base(func(s *EndpointSlice) { s.Ready = nil }),
		"terminating": base(func(s *EndpointSlice) { s.Terminating = s.Ready }),
	} {
		if same.Equal(other) {
			t.Errorf("equal in spite of another %s", what)
		}
	}
}

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
	return []PortAddrs{{port, NewAddrs(addrs...)}}
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
				checkByPort(t, e.ByPort)
				slices.Reverse(c.slices) // makes no difference
			}
		})
	}
}

func TestWhatSlicesAddUpToIsBounded(t *testing.T) {
	var addrs []Addr
	for i := range maxJoined / 4 {
		a, err := ParseAddr("h" + strings.Repeat("0", 10) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + string(rune('a'+i/17576)) + ":1")
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, Addr.compare)
	quarter := &EndpointSlice{Ready: []PortAddrs{{"a", NewAddrs(addrs...)}}}
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
	addrs := make([]Addr, maxJoined/2)
	for i := range addrs {
		addrs[i] = Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)}
	}
	half := NewAddrs(addrs...)
	large := &EndpointSlice{Ready: []PortAddrs{{"a", half}, {"b", half}, {"c", half}}}
	e, warning := JoinSlices(Name{}, []*EndpointSlice{large, {Ready: someAddrs("d", "10.0.0.1:1")}})
	if want := Warning("its endpoint slices list more than 131072 endpoints: 1 of the 2 slices are left out"); warning != want || e.Of("c").Len() != len(addrs) || e.Of("d").Len() != 0 {
		t.Errorf("%d and %d addresses, warning %q; want %q", e.Of("c").Len(), e.Of("d").Len(), warning, want)
	}
}

func TestAddressesHaveAnOrder(t *testing.T) {
	var sorted []Addr
	for text := range strings.FieldsSeq("10.0.0.1:1 10.0.0.1:2 10.0.0.2:1 [::1]:1 [fd00::1]:1 a:1 a:2 b:1") {
		a, err := ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		sorted = append(sorted, a)
	}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := a.compare(b), i-j; got*want < 0 || (got == 0) != (want == 0) {
				t.Errorf("%v compared with %v: %d", a, b, got)
			}
		}
	}
}
