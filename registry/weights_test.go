package registry

import (
	"fmt"
	"strings"
	"testing"
)

func TestWeightsAreReadAsRecordsSpellThem(t *testing.T) {
	addrs := someAddrs("", "10.0.0.1:80", "10.0.0.2:80", "web-3.example:80", "[fd00::4]:80")
	for _, c := range []struct{ annotation, want, err string }{
		{"", "", `"" is no weight from 0 to 256`},
		{"1", "", ""},
		{"5", "10.0.0.1:80=5,10.0.0.2:80=5,[fd00::4]:80=5,web-3.example:80=5", ""},
		{"0", "10.0.0.1:80=0,10.0.0.2:80=0,[fd00::4]:80=0,web-3.example:80=0", ""},
		{"10.0.0.2=256, 10.0.0.1=0,fd00:0::4=3,web-3.example=1", "10.0.0.1=0,10.0.0.2=256,fd00::4=3", ""},
		{"10.9.9.9=7", "10.9.9.9=7", ""}, // whom another record may have
		{"10.0.0.1=257", "", `"257" is no weight from 0 to 256`},
		{"-1", "", `"-1" is no weight from 0 to 256`},
		{"05", "", `"05" is no weight from 0 to 256`},
		{"1.5", "", `"1.5" is no weight from 0 to 256`},
		{"10.0.0.1=1,10.0.0.1=2", "", `"10.0.0.1" has two weights`},
		{"10.0.0.1=0,::ffff:10.0.0.1=2", "", `"::ffff:10.0.0.1" has two weights`},
		{"10.0.0.1:80=5,10.0.0.1:81=1,10.0.0.1=3", "10.0.0.1=3,10.0.0.1:80=5,10.0.0.1:81=1", ""},
		{"[fd00:0::4]:80=5,fd00::4=5,web-3.example:80=0,web-3.example:81=1", "fd00::4=5,web-3.example:80=0", ""}, // without what follows from the rest
		{"10.0.0.1:80=1, 10.0.0.1:80=2", "", `"10.0.0.1:80" has two weights`},
		{"10.0.0.1:x=5", "", `"10.0.0.1:x=5" is no weight of an address, such as 10.1.2.3=5, 10.1.2.3:80=5 or [fd00::3]:80=5`},
		{"10.0.0.1:0=5", "", `"10.0.0.1:0=5" is no weight of an address, such as 10.1.2.3=5, 10.1.2.3:80=5 or [fd00::3]:80=5`},
		{"10.0.0.1=5,", "", `"" is no weight of an address, such as 10.1.2.3=5, 10.1.2.3:80=5 or [fd00::3]:80=5`},
	} {
		got, err := ParseWeights(c.annotation, addrs)
		got = got.Canonical()
		if c.err != "" {
			c.err = "annotation kube-proxy/weight: " + c.err
		}
		if text := fmt.Sprint(err); string(got) != c.want || err == nil && c.err != "" || err != nil && text != c.err {
			t.Errorf("%q: %q, %v; want %q, %s", c.annotation, got, err, c.want, c.err)
		}
		if err := got.Check(); err != nil {
			t.Errorf("%q: %v", c.annotation, err)
		}
	}
	for _, bad := range []Weights{"5", "10.0.0.1=1", "10.0.0.2=2,10.0.0.1=3", "x"} {
		if bad.Check() == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestWeightsFollowTheAddressesOfAList(t *testing.T) {
	addrs := someAddrs("", "10.0.0.2:80", "10.0.0.1:80", "10.0.0.1:81")[0].Addrs
	if got := fmt.Sprint(Weights("10.0.0.1=5").Of(addrs)); got != "[1 5 5]" {
		t.Errorf("the weights are %s", got)
	}
	for weights, want := range map[Weights]string{
		"10.0.0.1:81=5": "[1 1 5]", "10.0.0.1:80=0,10.0.0.1=3": "[1 0 3]", "10.0.0.1:80=1,10.0.0.1=3": "[1 1 3]", // that of host and port comes first
	} {
		if got := fmt.Sprint(weights.Of(addrs)); got != want {
			t.Errorf("%q: the weights are %s; want %s", weights, got, want)
		}
	}
	for _, none := range []Weights{"", "10.9.9.9=5", "10.0.0.1:8=5"} {
		if got := none.Of(addrs); got != nil {
			t.Errorf("%q: the weights are %v; want none", none, got)
		}
	}
}

func TestWeightsOfSlicesAddUp(t *testing.T) {
	slice := func(addr string, weights Weights) *EndpointSlice {
		return &EndpointSlice{Ready: someAddrs("", addr+":80"), Weights: weights}
	}
	for _, c := range []struct {
		slices []*EndpointSlice
		want   Weights
	}{
		{[]*EndpointSlice{slice("10.0.0.1", "10.0.0.1=2")}, "10.0.0.1=2"},
		{[]*EndpointSlice{slice("10.0.0.1", ""), slice("10.0.0.2", "10.0.0.2=3"), slice("10.0.0.3", "")}, "10.0.0.2=3"},
		{[]*EndpointSlice{slice("10.0.0.2", "10.0.0.2=3"), slice("10.0.0.1", "10.0.0.1=2")}, "10.0.0.1=2,10.0.0.2=3"},
		{[]*EndpointSlice{slice("10.0.0.1", "10.0.0.1=2"), slice("10.0.0.1", "10.0.0.1=3")}, "10.0.0.1=3"},
	} {
		if e, _ := JoinSlices(Name{}, c.slices); e.Weights != c.want {
			t.Errorf("%d slices have the weights %q; want %q", len(c.slices), e.Weights, c.want)
		}
	}
	// Two instances on one host, as kube-proxy register writes them.
	of := func(addr, annotation string) *EndpointSlice {
		s := &EndpointSlice{Ready: someAddrs("", addr)}
		s.Weights, _ = ParseWeights(annotation, s.Ready)
		return s
	}
	e, _ := JoinSlices(Name{}, []*EndpointSlice{of("10.0.0.1:80", "5"), of("10.0.0.1:81", "0"), of("10.0.0.1:82", "1")})
	if got := fmt.Sprint(e.Weights.Of(e.ByPort[0].Addrs)); got != "[5 0 1]" {
		t.Errorf("three instances on one host have the weights %s", got)
	}
	// What a slice says counts though it would follow in a record of its own, for an earlier slice may say otherwise.
	for _, c := range []struct{ first, then, addr, want string }{
		{"10.0.0.1=0", "10.0.0.1=1", "10.0.0.1:80", "[]"}, // all have 1,
		{"10.0.0.1=0", "1", "10.0.0.1:90", "[0 1]"},
		{"10.0.0.1:80=5", "10.0.0.1=0,10.0.0.1:80=0", "10.0.0.1:80", "[0]"},
		{"10.0.0.1=1", "10.0.0.1=0", "10.0.0.1:80", "[0]"},
	} {
		e, _ := JoinSlices(Name{}, []*EndpointSlice{of("10.0.0.1:80", c.first), of(c.addr, c.then)})
		if got := fmt.Sprint(e.Weights.Of(e.ByPort[0].Addrs)); got != c.want || e.Weights.Check() != nil {
			t.Errorf("%s, and then %s: the weights are %s, %v; want %s", c.first, c.then, got, e.Weights.Check(), c.want)
		}
	}
	a, b := &Endpoints{Weights: "10.0.0.1=2"}, &Endpoints{}
	if a.Equal(b) || slice("10.0.0.1", "10.0.0.1=2").Equal(slice("10.0.0.1", "")) {
		t.Error("records with other weights are equal")
	}
}

func BenchmarkJoinWeights(b *testing.B) {
	var parts []*EndpointSlice
	for i := range 100 {
		addr := fmt.Sprintf("10.0.0.%d", i)
		parts = append(parts, &EndpointSlice{Ready: someAddrs("", addr+":80"), Weights: Weights(strings.Join([]string{addr, "5"}, "="))})
	}
	for b.Loop() {
		JoinSlices(Name{}, parts)
	}
}
