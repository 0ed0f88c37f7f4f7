package registry

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestNearnessFollowsHintsThatAllEndpointsHave(t *testing.T) {
	here := OnNode | InZone
	for _, c := range []struct {
		name   string
		by     Distribution
		places []Place
		want   []uint8 // nil: all are alike
	}{
		{"nothing is known", Anywhere, []Place{0, 0}, nil},
		{"zones alone", Anywhere, []Place{InZone, OutOfZone}, nil},
		{"hints of zones", Anywhere, []Place{ForZone, ForOtherZone, ForZone}, []uint8{0, 1, 0}},
		{"one without a hint", Anywhere, []Place{ForZone, ForOtherZone, InZone}, nil},
		{"no hint for this zone", Anywhere, []Place{ForOtherZone, ForOtherZone}, nil},
		{"all are for this zone", Anywhere, []Place{ForZone, ForZone}, nil},
		{"a hint is not where the endpoint is", Anywhere, []Place{OutOfZone | ForZone, InZone | ForOtherZone}, []uint8{0, 1}},
		{"hints of nodes and zones", Anywhere, []Place{ForOtherNode | ForOtherZone, ForOtherNode | ForZone, ForNode | ForZone}, []uint8{2, 1, 0}},
		{"none for this node", Anywhere, []Place{ForOtherNode | ForOtherZone, ForOtherNode | ForZone}, []uint8{1, 0}},
		{"the zone is preferred", PreferSameZone, []Place{OutOfZone, InZone, here, 0}, []uint8{1, 0, 0, 1}},
		{"the node is preferred", PreferSameNode, []Place{OutOfZone, InZone, here, 0}, []uint8{2, 1, 0, 2}},
		{"backups", Anywhere, []Place{Backup, 0, Backup}, []uint8{1, 0, 1}},
		{"all are backups", Anywhere, []Place{Backup, Backup}, nil},
		{"none is in the zone that is preferred", PreferSameZone, []Place{OutOfZone, OutOfZone}, nil},
		{"near backups come after all others", PreferSameZone, []Place{InZone | Backup, OutOfZone, OutOfZone | Backup, InZone}, []uint8{2, 1, 3, 0}},
		{"hints come before a preference", PreferSameNode, []Place{here | ForOtherZone, OutOfZone | ForZone}, []uint8{1, 0}},
	} {
		packed := make([]byte, len(c.places))
		for i, p := range c.places {
			packed[i] = byte(p)
		}
		if got := c.by.Nearness(Places(packed), len(c.places)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v; want %v", c.name, got, c.want)
		}
	}
	if got := PreferSameNode.Nearness("", 3); got != nil {
		t.Errorf("without places: got %v", got)
	}
}

func TestAZoneThatIsWrittenDownIsAHint(t *testing.T) {
	a, b, c := Addr{IP: netip.MustParseAddrPort("10.0.0.1:1")}, Addr{IP: netip.MustParseAddrPort("10.0.0.1:2")}, Addr{IP: netip.MustParseAddrPort("[fd00::1]:1")}
	for annotation, want := range map[string]Places{
		"east":                          places(InZone|ForZone, InZone|ForZone, InZone|ForZone),
		"west":                          places(OutOfZone|ForOtherZone, OutOfZone|ForOtherZone, OutOfZone|ForOtherZone),
		"10.0.0.1=west,10.0.0.1:2=east": places(OutOfZone|ForOtherZone, InZone|ForZone, ForOtherZone),
		"fd00::1=west, 10.0.0.1=east":   places(InZone|ForZone, InZone|ForZone, OutOfZone|ForOtherZone),
		"[fd00::1]:1=east":              places(ForOtherZone, ForOtherZone, InZone|ForZone),
	} {
		zones, err := ParseZones(annotation)
		if err != nil {
			t.Errorf("%s: %v", annotation, err)
		}
		byPort := []PortAddrs{{Addrs: NewAddrs(a, b, c)}}
		Node{Zone: "east"}.Locate(byPort, &zones)
		if got := byPort[0].Places; got != want {
			t.Errorf("%s: got %v; want %v", annotation, []byte(got), []byte(want))
		}
		byPort[0].Places = ""
		Node{Name: "n"}.Locate(byPort, &zones)
		if byPort[0].Places != "" {
			t.Errorf("%s: a node without a zone has places %v", annotation, []byte(byPort[0].Places))
		}
	}
}

func places(all ...Place) (p Places) {
	for _, one := range all {
		p += Places([]byte{byte(one)})
	}
	return p
}

func TestABadZoneIsAnErrorThatNamesTheAnnotation(t *testing.T) {
	for _, annotation := range []string{"", " ", "a b", "10.0.0.1=", "10.0.0.1=a,10.0.0.1=b", "web 1=a", "=a", "10.0.0.1=a,b", "10.0.0.1:0=a", strings.Repeat("z", 254)} {
		if _, err := ParseZones(annotation); err == nil || !strings.HasPrefix(err.Error(), "annotation kube-proxy/zone: ") || len(err.Error()) > 1000 {
			t.Errorf("%q: error %v", annotation, err)
		}
	}
}

func TestSlicesKeepThePlacesOfTheirEndpoints(t *testing.T) {
	a, b, c := Addr{IP: netip.MustParseAddrPort("10.0.0.1:1")}, Addr{IP: netip.MustParseAddrPort("10.0.0.2:1")}, Addr{IP: netip.MustParseAddrPort("10.0.0.3:1")}
	slice := func(p Places, addrs ...Addr) *EndpointSlice {
		return &EndpointSlice{Ready: []PortAddrs{{Addrs: NewAddrs(addrs...), Places: p}}}
	}
	sum, _ := JoinSlices(Name{}, []*EndpointSlice{slice(places(InZone, OutOfZone), a, c), slice("", b), slice(places(OnNode), c)})
	if got, want := sum.Find("").Places, places(InZone, 0, OnNode); got != want {
		t.Errorf("the sum has places %v; want %v", []byte(got), []byte(want))
	}
	for _, last := range []*EndpointSlice{slice("", a), slice(places(0, Backup), a, b)} { // the one whose key comes last counts, though it says nothing of the address
		sum, _ := JoinSlices(Name{}, []*EndpointSlice{slice(places(Backup), a), last})
		if got := sum.Find("").Places.At(0); got != 0 {
			t.Errorf("after a slice with places %v, the address has place %d; want 0", []byte(last.Ready[0].Places), got)
		}
	}
}

func TestBackupsAreMarkedAndABadOneIsAnErrorThatNamesTheAnnotation(t *testing.T) {
	a, b, c := Addr{IP: netip.MustParseAddrPort("10.0.0.1:1")}, Addr{IP: netip.MustParseAddrPort("10.0.0.1:2")}, Addr{IP: netip.MustParseAddrPort("[fd00::1]:1")}
	for annotation, want := range map[string]Places{
		"true":                 places(InZone|Backup, Backup, Backup),
		"10.0.0.1":             places(InZone|Backup, Backup, 0),
		"10.0.0.1:2, fd00::1":  places(InZone, Backup, Backup),
		"[fd00::1]:1,10.9.9.9": places(InZone, 0, Backup),
		"10.9.9.9":             places(InZone, 0, 0),
	} {
		backups, err := ParseBackups(annotation)
		if err != nil {
			t.Errorf("%s: %v", annotation, err)
		}
		byPort := []PortAddrs{{Addrs: NewAddrs(a, b, c), Places: places(InZone, 0, 0)}}
		backups.Mark(byPort)
		if got := byPort[0].Places; got != want {
			t.Errorf("%s: got %v; want %v", annotation, []byte(got), []byte(want))
		}
	}
	for _, annotation := range []string{"", ",", "10.0.0.1=5", "10.0.0.1:many", "false", "10.0.0.1,,10.0.0.2", strings.Repeat("x", 5000)} {
		if _, err := ParseBackups(annotation); (err == nil || !strings.HasPrefix(err.Error(), "annotation kube-proxy/backup: ") || len(err.Error()) > 1000) && annotation != "false" {
			t.Errorf("%.20q: %v", annotation, err)
		}
	}
}
