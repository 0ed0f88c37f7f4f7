package decode

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"kubeproxy/registry"
)

// shown gives the ports of a service in short: "tcp 10.96.0.7:80", with a star if any client may connect, and "local" if endpoints on the node serve it.
func shown(ports []registry.Port) (all []string) {
	for _, p := range ports {
		text := p.ID().Short()
		if p.Open {
			text += "*"
		}
		if p.Local {
			text += " local"
		}
		all = append(all, text)
	}
	return all
}

func TestServicesListenAtTheAddressesOfTheirCluster(t *testing.T) {
	const full = `{"apiVersion":"v1","spec":{"type":"LoadBalancer","ports":[{"port":80,"nodePort":30080}],"clusterIP":"10.96.0.7","clusterIPs":["10.96.0.7","fd00::7"],
		"externalIPs":["192.0.2.7"],"loadBalancerSourceRanges":["10.0.0.0/8"]%s},"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.7"},{"hostname":"lb.example"},
		{"ip":"198.51.100.8","ipMode":"Proxy"},{"ip":"198.51.100.9","ipMode":"VIP"}]}}}`
	cluster := []string{"tcp 10.96.0.7:80*", "tcp [fd00::7]:80*", "tcp 192.0.2.7:80*", "tcp 198.51.100.7:80", "tcp 198.51.100.9:80"}
	for _, c := range []struct {
		name    string
		at      Addresses
		value   string
		want    []string
		warning string
	}{
		{"at the node", AtNode, fmt.Sprintf(full, ""), []string{"tcp 80"}, ""},
		{"of the cluster", AtCluster, fmt.Sprintf(full, ""), append(slices.Clone(cluster), "tcp 30080*"), ""},
		{"of both", AtBoth, fmt.Sprintf(full, ""), append(slices.Clone(cluster), "tcp 80", "tcp 30080*"), ""},
		{"external clients get endpoints on the node", AtCluster, fmt.Sprintf(full, `,"externalTrafficPolicy":"Local"`),
			[]string{"tcp 10.96.0.7:80*", "tcp [fd00::7]:80*", "tcp 192.0.2.7:80* local", "tcp 198.51.100.7:80 local", "tcp 198.51.100.9:80 local", "tcp 30080* local"}, ""},
		{"internal ones do", AtCluster, fmt.Sprintf(full, `,"internalTrafficPolicy":"Local"`),
			[]string{"tcp 10.96.0.7:80* local", "tcp [fd00::7]:80* local", "tcp 192.0.2.7:80*", "tcp 198.51.100.7:80", "tcp 198.51.100.9:80", "tcp 30080*"}, ""},
		{"the annotation wins, and node ports stay", AtCluster,
			`{"apiVersion":"v1","metadata":{"annotations":{"kube-proxy/listen":"127.77.0.1,node"}},"spec":{"ports":[{"port":80,"nodePort":30080}],"clusterIP":"10.96.0.7"}}`,
			[]string{"tcp 127.77.0.1:80", "tcp 80", "tcp 30080*"}, ""},
		{"a port that is its node port", AtBoth, `{"apiVersion":"v1","spec":{"ports":[{"port":30080,"nodePort":30080}],"clusterIP":"10.96.0.7"}}`, []string{"tcp 10.96.0.7:30080*", "tcp 30080"}, ""},
		{"flat", AtCluster, `{"port":80,"portalIP":"10.0.0.7","publicIPs":["192.0.2.7"]}`, []string{"tcp 10.0.0.7:80*", "tcp 192.0.2.7:80*"}, ""},
		{"v1beta3", AtCluster, `{"apiVersion":"v1beta3","spec":{"ports":[{"port":80}],"portalIP":"10.0.0.7","publicIPs":["192.0.2.7"]}}`, []string{"tcp 10.0.0.7:80*", "tcp 192.0.2.7:80*"}, ""},
		{"before v1.1", AtCluster, `{"apiVersion":"v1","spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.7","deprecatedPublicIPs":["192.0.2.7"]}}`, []string{"tcp 10.0.0.7:80*", "tcp 192.0.2.7:80*"}, ""},
		{"an address twice", AtCluster, `{"apiVersion":"v1","spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.7","externalIPs":["10.0.0.7","::ffff:10.0.0.7"]}}`, []string{"tcp 10.0.0.7:80*"}, ""},
		{"an address that none can have", AtCluster, `{"apiVersion":"v1","spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.7","externalIPs":["224.0.0.1"]}}`,
			[]string{"tcp 10.0.0.7:80*"}, `unusable address of its own left out: "224.0.0.1" (multicast address)`},
		{"a name", AtCluster, `{"apiVersion":"v1","spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.7","externalIPs":["web"]}}`, []string{"tcp 10.0.0.7:80*"}, `unusable address of its own left out: "web" (not an address)`},
		{"no address", AtCluster, `{"port":80}`, nil, "it has no address of its own and no nodePort, so -service_address=cluster offers it nowhere"},
		{"no address, at the node too", AtBoth, `{"port":80}`, []string{"tcp 80"}, ""},
		{"headless", AtCluster, `{"apiVersion":"v1","spec":{"ports":[{"port":80}],"clusterIP":"None","clusterIPs":["None"]}}`, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings, err := Decoder{Addresses: c.at}.Decode(specKey, []byte(c.value))
			checkAnswer(t, r, warnings, err)
			if err != nil {
				t.Fatal(err)
			}
			var odd []string
			for _, w := range warnings {
				odd = append(odd, string(w))
			}
			if got := shown(r.Service.Ports); !slices.Equal(got, c.want) || strings.Join(odd, "; ") != c.warning {
				t.Errorf("%q, warnings %q; want %q, %q", got, odd, c.want, c.warning)
			}
		})
	}
}

// TestAllAddressesOfAServiceThatCannotBeUsedTakeOneWarning, whatever their number: a record may list hundreds of thousands.
func TestAllAddressesOfAServiceThatCannotBeUsedTakeOneWarning(t *testing.T) {
	const n = 100_000
	value := `{"apiVersion":"v1","spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.7","externalIPs":["224.0.0.1"` + strings.Repeat(`,"x"`, n) + `]}}`
	_, warnings, err := Decoder{Addresses: AtCluster}.Decode(specKey, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`%d unusable addresses of its own left out, among them "224.0.0.1" (multicast address), "x" (not an address), "x" (not an address)`, n+1)
	if len(warnings) != 1 || string(warnings[0]) != want {
		t.Errorf("%d warnings, the first is %.300q; want one: %s", len(warnings), warnings[0], want)
	}
}

// What means nothing to a node is not read, so it may hold anything.
func TestAddressesAreReadOnlyIfTheyCount(t *testing.T) {
	const value = `{"apiVersion":"v1","spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.7","externalIPs":"192.0.2.7"},"status":5}`
	if _, _, err := Decode(specKey, []byte(value)); err != nil {
		t.Error(err)
	}
	for _, field := range []string{"clusterIPs", "externalIPs", "publicIPs", "deprecatedPublicIPs"} {
		wrong := `{"apiVersion":"v1","spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.7","` + field + `":"192.0.2.7"}}`
		if _, _, err := (Decoder{Addresses: AtCluster}).Decode(specKey, []byte(wrong)); err == nil || err.Error() != "spec."+field+" holds a string where an array is wanted" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, _, err := (Decoder{Addresses: AtCluster}).Decode(specKey, []byte(`{"apiVersion":"v1","spec":{"ports":[{"port":80}]},"status":{"loadBalancer":{"ingress":5}}}`)); err == nil || !strings.Contains(err.Error(), "status.loadBalancer.ingress") {
		t.Errorf("status: %v", err)
	}
}

// TestAServiceHasAThousandListenersAtMost at all its addresses together.
func TestAServiceHasAThousandListenersAtMost(t *testing.T) {
	var ports []string
	for i := range 600 {
		ports = append(ports, fmt.Sprintf(`{"name":"p%d","port":%d}`, i, i+1))
	}
	value := `{"apiVersion":"v1","spec":{"ports":[` + strings.Join(ports, ",") + `],"clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7","fd00::7"]}}`
	_, _, err := Decoder{Addresses: AtCluster}.Decode(specKey, []byte(value))
	if want := "600 ports at 2 addresses are 1200, more than 1000"; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// TestTermsAreOfOnePort: source ranges are about load balancers, and policies about who comes.
func TestTermsAreOfOnePort(t *testing.T) {
	s := registry.Service{Asked: &registry.Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
	for _, p := range []registry.Port{{}, {Local: true}, {Open: true}, {Local: true, Open: true}} {
		if got := s.TermsOf(&p); got.Local != p.Local || (len(got.SourceRanges) == 0) != p.Open {
			t.Errorf("%+v: local %t, from %v", p, got.Local, got.SourceRanges)
		}
	}
}
