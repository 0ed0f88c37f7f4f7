package registry

import (
	"net/netip"
	"slices"
	"testing"
)

func TestEqualServicesAreTheSameInEverything(t *testing.T) {
	base := func() *Service {
		return &Service{
			Name: Name{"default", "x"}, Created: 7, Ports: []Port{{Name: "a", Number: 1}, {Name: "b", Protocol: UDP, Number: 2}},
			Asked: &Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		}
	}
	if !base().Equal(base()) {
		t.Error("not equal to its like")
	}
	for what, change := range map[string]func(*Service){
		"namespace": func(s *Service) { s.Namespace = "other" },
		"name":      func(s *Service) { s.Name.Name = "y" },
		"created":   func(s *Service) { s.Created++ },
		"affinity":  func(s *Service) { s.Asked.Affinity = AffinityClientIP },
		"timeout":   func(s *Service) { s.Asked.AffinityTimeout++ },
		"range":     func(s *Service) { s.Asked.SourceRanges[0] = netip.MustParsePrefix("10.0.0.0/9") },
		"no range":  func(s *Service) { s.Asked.SourceRanges = nil },
		"limit":     func(s *Service) { s.Asked.Limits.Connections++ },
		"client":    func(s *Service) { s.Asked.Limits.PerClient++ },
		"requests":  func(s *Service) { s.Asked.Limits.Requests++ },
		"replies":   func(s *Service) { s.Asked.Limits.Replies++ },
		"connect":   func(s *Service) { s.Asked.Timeouts.Connect++ },
		"idle":      func(s *Service) { s.Asked.Timeouts.Idle++ },
		"silence":   func(s *Service) { s.Asked.Timeouts.UDP++ },
		"removal":   func(s *Service) { s.Asked.Removal.Rule++ },
		"number":    func(s *Service) { s.Ports[1].Number++ },
		"address":   func(s *Service) { s.Ports[1].Addr = netip.MustParseAddr("127.0.0.2") },
		"no terms":  func(s *Service) { s.Asked = nil },
		"order":     func(s *Service) { slices.Reverse(s.Ports) },
		"fewer":     func(s *Service) { s.Ports = s.Ports[:1] },
	} {
		other := base()
		change(other)
		if base().Equal(other) || other.Equal(base()) {
			t.Errorf("equal in spite of another %s", what)
		}
	}
	other := base()
	if other.Rank, other.Since = 1, []int64{7, 9}; !base().Equal(other) {
		t.Error("what the record does not say makes a difference")
	}
	var none *Service
	if none.Equal(base()) || base().Equal(none) || !none.Equal(nil) {
		t.Error("nil is equal to nil and to nothing else")
	}
}

func TestProtocolsAndAffinitiesAsText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{TCP.String(), "tcp"},
		{UDP.String(), "udp"},
		{Protocol(7).String(), "protocol(7)"},
		{AffinityNone.String(), "None"},
		{AffinityClientIP.String(), "ClientIP"},
		{KindService.String(), "Service"},
		{KindEndpoints.String(), "Endpoints"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// The age of a claim is what can be known of it: a record that is read for the first time is as old as its value, and from then on
// each port keeps its age for as long as the record claims it.
func TestAClaimIsAsOldAsItCanBeProved(t *testing.T) {
	const created = 3
	var before *Service
	for _, step := range []struct {
		revision int64
		ports    []Port
		want     []int64
	}{
		{10, []Port{{Number: 80}, {Protocol: UDP, Number: 80}}, []int64{10, 10}},
		{20, []Port{{Protocol: UDP, Number: 80}, {Name: "new", Number: 81}, {Name: "renamed", Number: 80}}, []int64{10, 20, 10}},
		{30, []Port{{Number: 81}}, []int64{20}},
		{40, []Port{{Number: 81}, {Number: 80}}, []int64{20, 40}}, // it had given up port 80
		{50, nil, []int64{}},
		{60, []Port{{Number: 81}}, []int64{60}},
	} {
		s := &Service{Name: Name{"default", "x"}, Created: created, Ports: step.ports}
		s.Date(before, step.revision)
		if !slices.Equal(s.Since, step.want) {
			t.Errorf("at revision %d, ports %v are known since %v; want %v", step.revision, step.ports, s.Since, step.want)
		}
		before = s
	}
	undated := &Service{Created: created, Ports: []Port{{Number: 80}}}
	if got := undated.ClaimedSince(0); got != created {
		t.Errorf("a claim that was not dated is known since %d; want the create revision", got)
	}
}
