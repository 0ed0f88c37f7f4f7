package check

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// stored makes a registry of keys and values: "specs/web", "{…}", "endpoints/web", … In etcd each
// would have been created after the one before.
func stored(keysAndValues ...string) Registry {
	r := Registry{Source: "a test", Revision: 100}
	for kv := range slices.Chunk(keysAndValues, 2) {
		r.Records = append(r.Records, Record{Key: registry.Prefix + kv[0], Value: []byte(kv[1]), Created: int64(1 + len(r.Records))})
	}
	return r
}

// modified gives the records mod revisions, in their order; 0: never modified.
func modified(r Registry, revisions ...int64) Registry {
	for i, revision := range revisions {
		r.Records[i].Modified = revision
	}
	return r
}

// findings lists what was found, as "specs/web: error bad-record: …"; verdicts of whole reports have
// no key.
func findings(r *Report) string {
	var lines []string
	for _, v := range r.Records {
		for _, f := range v.Findings {
			lines = append(lines, fmt.Sprintf("%s: %s %s: %s", strings.TrimPrefix(v.Key, registry.Prefix), f.Level, f.Code, f.Text))
		}
	}
	for _, f := range r.Findings {
		lines = append(lines, fmt.Sprintf("%s %s: %s", f.Level, f.Code, f.Text))
	}
	return strings.Join(lines, "\n")
}

func TestWhatARegistryIsToldOfItself(t *testing.T) {
	const one = `{"endpoints":["10.0.0.1:80"]}`
	for _, c := range []struct {
		name string
		in   Registry
		with Options
		want []string
	}{
		{"nothing wrong", stored("specs/web", `{"port":8000}`, "endpoints/web", one), Options{}, nil},
		{"members of a cluster", stored("specs/pg", `{"port":5000,"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary"}}`), Options{Decoder: decode.Decoder{Patroni: "/service/"}}, nil},
		{"a cluster that no node follows", stored("specs/pg", `{"port":5000,"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary"}}`), Options{}, []string{
			"specs/pg: error bad-record: annotation kube-proxy/patroni: -patroni says where clusters have their keys, and it is empty, or this source is no etcd 3"}},
		{"no records", stored(), Options{}, []string{"warning no-records: there are no records: nothing is below /registry/services/"}},
		{"somebody else's key", stored("other/web", `x`), Options{}, []string{"other/web: info foreign-key: neither a service spec, nor endpoints, nor an endpoint slice"}},
		{"keys of the wrong depth", stored("specs/a/b/c", `{"port":1}`, "endpoints/", `{}`, "specs//x", `{"port":1}`), Options{}, []string{
			"endpoints/: error bad-key: empty name in key",
			"specs//x: error bad-key: empty namespace in key",
			"specs/a/b/c: error bad-key: key has more than two segments below /registry/services/specs/"}},
		{"a bad service", stored("specs/web", `{"port":"80"}`, "endpoints/web", one), Options{}, []string{
			"endpoints/web: warning no-service: the record of its service cannot be used",
			"specs/web: error bad-record: port holds a string where a whole number is wanted"}},
		{"bad endpoints", stored("specs/web", `{"port":8000}`, "endpoints/web", `[]`), Options{}, []string{
			"endpoints/web: error bad-record: an array where a JSON object is wanted",
			"specs/web: warning no-endpoints: the record of its endpoints cannot be used"}},
		{"node ports", stored("specs/a", `{"ports":[{"port":8000,"nodePort":30000},{"port":8001}]}`, "endpoints/a", one, "specs/b", `{"ports":[{"port":8000,"nodePort":30001}]}`, "endpoints/b", one),
			Options{Decoder: decode.Decoder{NodePorts: true}}, []string{"specs/a: info no-node-port: ports that have no nodePort are not offered: 1"}},
		{"what the decoder warns of", stored("specs/web", `{"id":"ebb","port":8000}`, "endpoints/web", `{"endpoints":["10.0.0.1:80","x"]}`), Options{}, []string{
			`endpoints/web: warning odd-record: unusable endpoint left out: "x" (missing port in address)`,
			`specs/web: warning odd-record: the body says that it is "default/ebb"; the key counts`}},
		{"a service without endpoints", stored("specs/web", `{"port":8000}`), Options{}, []string{
			"specs/web: warning no-endpoints: there are no endpoints of this name"}},
		{"endpoints that are none", stored("specs/web", `{"port":8000}`, "endpoints/web", `{}`), Options{}, []string{
			"specs/web: warning no-endpoints: the record of its endpoints names none that can be used"}},
		{"endpoints of weight 0", stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["10.0.0.1:80","10.0.0.2:80"],"annotations":{"kube-proxy/weight":"0"}}`), Options{}, []string{
			"specs/web: warning no-weight: all endpoints of tcp 8000 have weight 0, so new clients are refused: give one a weight"}},
		{"an endpoint of weight 0", stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["10.0.0.1:80","10.0.0.2:80"],"annotations":{"kube-proxy/weight":"10.0.0.1=0"}}`), Options{}, nil},
		{"endpoints without a service", stored("endpoints/web", one), Options{}, []string{
			"endpoints/web: warning no-service: there is no service of this name"}},
		{"a name in another namespace is another name", stored("specs/prod/web", `{"port":8000}`, "endpoints/web", one), Options{}, []string{
			"endpoints/web: warning no-service: there is no service of this name",
			"specs/prod/web: warning no-endpoints: there are no endpoints of this name"}},
		{"a service with nothing to serve needs no endpoints, and may have some", stored(
			"specs/a", `{"port":8000,"portalIP":"None"}`, "specs/b", `{"port":8000,"portalIP":"None"}`, "endpoints/b", one), Options{}, nil},

		{"the older one has the port", stored("specs/b", `{"port":8000}`, "endpoints/b", one, "specs/a", `{"port":8000}`, "endpoints/a", one), Options{}, []string{
			"specs/a: error port-conflict: tcp 8000 belongs to b, whose claim is older"}},
		{"an old service that came to want the port lately has to wait", modified(stored("specs/a", `{"ports":[{"port":8001},{"port":8000}]}`, "endpoints/a", one, "specs/b", `{"port":8000}`, "endpoints/b", one), 9, 0, 0, 0), Options{}, []string{
			"specs/a: error port-conflict: tcp 8000 belongs to b, whose claim is older",
			"specs/a: warning unsettled-conflict: which service claimed the port first is not known, so a node may have another owner until it restarts: " +
				"tcp 8000 (the record of b is of revision 3, this one was created at 1)"}},
		{"a value that is older than the other record is the owner for certain", modified(stored("specs/a", `{"port":8000}`, "endpoints/a", one, "specs/b", `{"port":8000}`, "endpoints/b", one), 2, 0, 9, 0), Options{}, []string{
			"specs/b: error port-conflict: tcp 8000 belongs to a, whose claim is older"}},
		{"of the same age, the one whose name comes first", sameAge(stored("specs/b", `{"port":8000}`, "endpoints/b", one, "specs/a", `{"port":8000}`, "endpoints/a", one)), Options{}, []string{
			"specs/b: error port-conflict: tcp 8000 belongs to a, which comes first by name"}},
		{"namespace before name", sameAge(stored("specs/b/x", `{"port":8000}`, "endpoints/b/x", one, "specs/a/y", `{"port":8000}`, "endpoints/a/y", one)), Options{}, []string{
			"specs/b/x: error port-conflict: tcp 8000 belongs to a/y, which comes first by name"}},
		{"several ports, several owners", stored(
			"specs/a", `{"ports":[{"port":8000},{"port":8001}]}`, "endpoints/a", one, "specs/b", `{"ports":[{"port":8002},{"port":8003}]}`, "endpoints/b", one,
			"specs/c", `{"ports":[{"port":8004},{"port":8003},{"port":8002},{"port":8001},{"port":8000}]}`, "endpoints/c", one), Options{}, []string{
			"specs/c: error port-conflict: tcp 8000 belongs to a, whose claim is older, tcp 8001 belongs to a, whose claim is older, tcp 8002 belongs to b, whose claim is older and 1 more"}},
		{"TCP and UDP do not collide", stored("specs/a", `{"port":8000}`, "endpoints/a", one, "specs/b", `{"port":8000,"protocol":"UDP"}`, "endpoints/b", one), Options{}, nil},
		{"a bad record wants no port", stored("specs/a", `{"port":8000,"protocol":"X"}`, "specs/b", `{"port":8000}`, "endpoints/b", one), Options{}, []string{
			`specs/a: error bad-record: unsupported protocol "X"`}},

		{"a flat key in the shadow", stored("specs/web", `{"port":8000}`, "specs/default/web", `{"port":8001}`, "endpoints/default/web", one, "endpoints/web", one), Options{}, []string{
			"endpoints/web: warning shadowed: is not in force: /registry/services/endpoints/default/web names the same and comes first",
			"specs/web: warning shadowed: is not in force: /registry/services/specs/default/web names the same and comes first"}},
		{"a bad namespaced key casts none", stored("specs/web", `{"port":8000}`, "specs/default/web", `{"port":0}`, "endpoints/web", one), Options{}, []string{
			"specs/default/web: error bad-record: port 0 is not between 1 and 65535"}},
		{"a service in the shadow claims nothing", stored("specs/a", `{"port":8000}`, "specs/default/a", `{"port":8001}`, "endpoints/a", one,
			"specs/b", `{"port":8000}`, "endpoints/b", one), Options{}, []string{
			"specs/a: warning shadowed: is not in force: /registry/services/specs/default/a names the same and comes first"}},

		{"port names that do not meet", stored("specs/web", `{"ports":[{"name":"http","port":8000},{"port":8001}]}`,
			"endpoints/web", `{"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"web","port":80},{"name":"http\n","port":80}]}]}`), Options{}, []string{
			`specs/web: warning no-endpoints-for-port: no endpoint serves tcp 8000 (port named "http"), tcp 8001 (unnamed port); its endpoints serve the port named "http\n", port named "web"`}},
		{"unnamed here, named there", stored("specs/web", `{"port":8000}`,
			"endpoints/web", `{"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"web","port":80}]}]}`), Options{}, []string{
			`specs/web: warning no-endpoints-for-port: no endpoint serves tcp 8000 (unnamed port); its endpoints serve the port named "web"`}},
		{"one of two names meets", stored("specs/web", `{"ports":[{"name":"a","port":8000},{"name":"b","port":8001}]}`,
			"endpoints/web", `{"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"a","port":80}]}]}`), Options{}, []string{
			`specs/web: warning no-endpoints-for-port: no endpoint serves tcp 8001 (port named "b"); its endpoints serve the port named "a"`}},

		{"an endpoint that is its own service", stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["127.0.0.1:8000","10.0.0.1:80"]}`), Options{}, []string{
			"endpoints/web: error own-listener: the proxy's own listeners: tcp 127.0.0.1:8000"}},
		{"an endpoint that is another service", stored("specs/a", `{"port":8000}`, "endpoints/a", `{"endpoints":["[::1]:8001","localhost:8001","127.9.9.9:8001","0.0.0.0:8001","[::ffff:127.0.0.1]:8001"]}`,
			"specs/b", `{"port":8001}`, "endpoints/b", one), Options{}, []string{
			`endpoints/a: warning odd-record: unusable endpoint left out: "0.0.0.0:8001" (unspecified address)`,
			"endpoints/a: error own-listener: the proxy's own listeners: tcp [::1]:8001, tcp localhost:8001, tcp 127.9.9.9:8001 and 1 more"}},
		{"of the other protocol it is no loop", stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["127.0.0.1:8001"]}`,
			"specs/b", `{"port":8001,"protocol":"UDP"}`, "endpoints/b", one), Options{}, nil},
		{"nor on an address that nobody binds to", stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["127.0.0.1:8000"]}`),
			Options{Bind: netip.MustParseAddr("127.0.0.2")}, nil},
		{"but on the one that is bound to", stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["192.0.2.1:8000"]}`),
			Options{Bind: netip.MustParseAddr("192.0.2.1")}, []string{
				"endpoints/web: error own-listener: the proxy's own listeners: tcp 192.0.2.1:8000"}},
		{"an endpoint that answers the proxy's operators", stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["127.0.0.1:10249","192.0.2.7:10249"]}`,
			"specs/dns", `{"port":8000,"protocol":"UDP"}`, "endpoints/dns", `{"endpoints":["127.0.0.1:10249"]}`),
			Options{Bind: netip.MustParseAddr("192.0.2.1"), Operators: []uint16{10249}}, []string{
				"endpoints/web: error own-listener: the proxy's own listeners: tcp 127.0.0.1:10249"}},
		{"two ports of one name and protocol count once", stored("specs/web", `{"ports":[{"port":8000},{"port":8001}]}`, "endpoints/web", `{"endpoints":["127.0.0.1:8000"]}`), Options{}, []string{
			"endpoints/web: error own-listener: the proxy's own listeners: tcp 127.0.0.1:8000"}},

		{"a port that is not allowed", stored("specs/web", `{"ports":[{"port":8000},{"port":9000}]}`, "endpoints/web", `{"endpoints":["127.0.0.1:9000"]}`),
			Options{RefusePort: refuse(9000)}, []string{
				"specs/web: error forbidden-port: cannot have tcp 9000: nobody may"}},
		{"and that it does not take from another", stored("specs/a", `{"port":8000}`, "endpoints/a", one, "specs/b", `{"port":8000}`, "endpoints/b", one),
			Options{RefusePort: refuse(8000)}, []string{
				"specs/a: error forbidden-port: cannot have tcp 8000: nobody may",
				"specs/b: error forbidden-port: cannot have tcp 8000: nobody may"}},
		{"an address that this machine does not have", stored("specs/web", `{"port":8000,"annotations":{"kube-proxy/listen":"node,192.0.2.9,127.0.0.2"}}`, "endpoints/web", one),
			Options{HasAddress: netip.MustParsePrefix("127.0.0.0/8").Contains}, []string{
				"specs/web: info address-elsewhere: no interface of this machine has the address of tcp 192.0.2.9:8000: a node without it does not open the port, and tries again until it has it"}},
		{"one port at two addresses is no conflict", stored("specs/a", `{"port":8000,"annotations":{"kube-proxy/listen":"127.0.0.2"}}`, "endpoints/a", one,
			"specs/b", `{"port":8000,"annotations":{"kube-proxy/listen":"127.0.0.3"}}`, "endpoints/b", one, "specs/c", `{"port":8000}`, "endpoints/c", one), Options{}, nil},
		{"endpoints that are not allowed", stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["192.0.2.1:80","10.0.0.1:80","localhost:80","unknown.example:80"]}`),
			Options{AllowEndpoint: netip.MustParsePrefix("10.0.0.0/8").Contains}, []string{
				"endpoints/web: error forbidden-endpoint: -allowed_endpoints does not allow tcp 192.0.2.1:80, tcp localhost:80"}},

		{"low ports", stored("specs/web", `{"ports":[{"port":80},{"port":1023},{"port":1024}]}`, "endpoints/web", one), Options{}, []string{
			"info privileged-ports: listeners on ports below 1024, which take root or CAP_NET_BIND_SERVICE: 2 of 3"}},
		{"more listeners than descriptors", stored("specs/web", `{"ports":[{"port":8000},{"port":8001},{"port":8002},{"port":8003}]}`, "endpoints/web", one,
			"specs/dns", `{"port":8001,"protocol":"UDP"}`, "endpoints/dns", one),
			Options{DescriptorLimit: 10, ListenerRoom: 1}, []string{
				"warning too-many-listeners: 5 listeners do not fit the descriptor limit: of the 10 of this shell (ulimit -n), listeners may have 1; " +
					"not open would be tcp 8001 of web, udp 8001 of dns, tcp 8002 of web and 1 more; a limit of 10 has room for all"}},
		{"ports that connections may have", stored("specs/web", `{"ports":[{"port":8000},{"port":8001},{"port":8002}]}`, "endpoints/web", one),
			Options{LocalPorts: proxy.PortRange{First: 8001, Last: 9000}}, []string{
				"info local-ports: listeners on ports from 8001 to 9000, any of which this machine may have given to a connection (net.ipv4.ip_local_port_range; " +
					"net.ipv4.ip_local_reserved_ports keeps ports out of it): 2 of 3"}},
		{"just as many", stored("specs/web", `{"ports":[{"port":8000},{"port":8001}]}`, "endpoints/web", one), Options{DescriptorLimit: 10, ListenerRoom: 2}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Examine(c.in, c.with)
			if got, want := findings(r), strings.Join(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if failed := strings.Contains(findings(r), "error "); r.Failed(false) != failed {
				t.Errorf("failed: %v", r.Failed(false))
			}
			checkReport(t, r)
		})
	}
}

// refuse is a guard on one port.
func refuse(port uint16) func(registry.Name, registry.ListenerID) error {
	return func(_ registry.Name, id registry.ListenerID) error {
		if id.Number == port {
			return errors.New("nobody may")
		}
		return nil
	}
}

// sameAge is how a directory tells it.
func sameAge(r Registry) Registry {
	for i := range r.Records {
		r.Records[i].Created = 0
	}
	return r
}

// checkReport holds a report to what is true of every one.
func checkReport(t *testing.T, r *Report) {
	t.Helper()
	s := r.Summary
	if s.Records != len(r.Records) || s.OK+s.Ignored+s.Warnings+s.Errors != s.Records {
		t.Errorf("the summary does not add up to %d records: %+v", len(r.Records), s)
	}
	for _, v := range r.Records {
		worst := OK
		for _, f := range v.Findings {
			switch {
			case f.Level == Error, f.Level == Warning && worst != Error:
				worst = f.Level
			}
			if strings.ContainsFunc(f.Text, unprintable) || len(f.Text) > 1500 {
				t.Errorf("finding of %d bytes: %q", len(f.Text), f.Text)
			}
		}
		if v.Verdict != worst && v.Verdict != Ignored {
			t.Errorf("verdict %s, but the worst finding is %s", v.Verdict, worst)
		}
		for _, text := range []string{v.Key, v.Name, v.Holds} {
			if strings.ContainsFunc(text, unprintable) || len(text) > 600 {
				t.Errorf("text of %d bytes: %q", len(text), text)
			}
		}
	}
	inOrder := func(a, b Verdict) int {
		if a.Key[0] == '"' || b.Key[0] == '"' {
			return 0 // not as they are
		}
		return strings.Compare(a.Key, b.Key)
	}
	if !slices.IsSortedFunc(r.Records, inOrder) {
		t.Error("the records are not in the order of their keys")
	}
}
