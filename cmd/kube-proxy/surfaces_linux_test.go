package main

import (
	"fmt"
	"html"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"kubeproxy/cmd/internal/check"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A stage is one node, which reads a directory with one service "web".
type stage struct {
	dir  string
	port uint16
	args []string // of the node, and of the check
	busy bool     // a client has its endpoint
}

// A said is what each surface says of the service "web" in one state of it.
type said struct {
	refused bool       // what clients feel
	page    string     // first sentence
	metric  string     // the condition of the service; "": none
	alerts  []string   // that would fire, sorted
	log     string     // part of a line
	check   check.Code // what the check has to say; "": nothing
}

// surfaceCases are the states of a service. In the sentence of the page, PORT stands for the port.
var surfaceCases = []struct {
	name  string
	stage func(*testing.T, *stage)
	want  said
}{
	{"all is well", func(t *testing.T, s *stage) { s.endpoints(t, "", s.chat(t)) }, said{page: "All is well."}},
	{"there are no endpoints", func(*testing.T, *stage) {}, said{
		refused: true, page: "default/web has no endpoints, and clients of tcp port PORT were turned away: write endpoints, or delete the service.",
		metric: "no_endpoints", alerts: []string{"KubeProxyClientsWithoutEndpoint", "KubeProxyServiceWithoutEndpoints"},
		log: "was turned away: the service has no endpoints", check: check.NoEndpoints,
	}},
	{"all endpoints have weight 0", func(t *testing.T, s *stage) { s.endpoints(t, "0", s.chat(t)) }, said{
		refused: true, page: "All endpoints of default/web have weight 0, so new clients of tcp port PORT are refused: give one a weight.",
		metric: "zero_weight", alerts: []string{"KubeProxyClientsWithoutEndpoint", "KubeProxyServiceRefusesClients"},
		log: "was turned away: all endpoints of the service have weight 0, so new clients are refused; give one a weight", check: check.NoWeight,
	}},
	{"all checks fail, and all endpoints serve", func(t *testing.T, s *stage) {
		s.service(t, `"haproxy.org/check-http":"/","haproxy.org/check-interval":"500ms"`)
		s.endpoints(t, "", s.chat(t))
	}, said{
		page:   "All endpoints of default/web fail their checks (",
		metric: "checks_fail", alerts: []string{"KubeProxyChecksIgnored"},
		log: "web: all endpoints fail their checks or do not answer over tcp, so clients are given all of them; if clients are served, the check is wrong",
	}},
	{"all checks fail, and the service refuses clients then", func(t *testing.T, s *stage) {
		s.service(t, `"kube-proxy/check-http":"/","kube-proxy/check-interval":"500ms","kube-proxy/all-failed":"refuse"`)
		s.endpoints(t, "", proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("web")).Addr) // ends with each client, or one that comes before a check would wait
	}, said{
		refused: true, page: "All endpoints of default/web fail their checks (",
		metric: "all_failed", alerts: []string{"KubeProxyClientsWithoutEndpoint", "KubeProxyServiceRefusesClients"},
		log: "was turned away: the checks of all endpoints of the service fail, and its record says that clients are refused then (kube-proxy/all-failed)",
	}},
	{"all endpoints are full", func(t *testing.T, s *stage) {
		s.service(t, `"kube-proxy/max-connections-per-endpoint":"1"`)
		s.endpoints(t, "", s.chat(t))
		s.busy = true
	}, said{
		refused: true, page: "The endpoints of default/web that are well have as many clients as its record allows (kube-proxy/max-connections-per-endpoint), so new clients of tcp port PORT wait or are refused: add endpoints, or raise the limit.",
		metric: "endpoint_limit", alerts: []string{"KubeProxyClientsOverLimit"},
		log: "was turned away: each endpoint of the service has as many connections as its record allows one (kube-proxy/max-connections-per-endpoint): 1",
	}},
	{"the service has as many clients as it may", func(t *testing.T, s *stage) {
		s.service(t, `"kube-proxy/max-connections":"1"`)
		s.endpoints(t, "", s.chat(t))
		s.busy = true
	}, said{
		refused: true, page: "Clients of default/web over tcp were turned away in the last five minutes: the service has as many as allowed (kube-proxy/max-connections, ",
		alerts: []string{"KubeProxyClientsOverLimit"},
		log:    "was turned away: the service has as many connections as allowed (kube-proxy/max-connections, or else -max_connections_per_service)",
	}},
	{"no endpoint answers", func(t *testing.T, s *stage) { s.endpoints(t, "", proxytest.Refusing(t)) }, said{
		refused: true, page: "No endpoint of default/web answers (",
		metric: "dial_failed", alerts: []string{"KubeProxyClientsWithoutEndpoint", "KubeProxyServiceDown"},
		log: "was turned away: no endpoint of the 1 tried answers",
	}},
	{"no endpoint answers over TCP, and all over UDP", func(t *testing.T, s *stage) {
		writeRecord(t, s.dir, registry.SpecsPrefix+"web", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"},"spec":{"ports":[{"port":%[1]d},{"port":%[1]d,"protocol":"UDP"}]}}`, s.port))
		s.endpoints(t, "", proxytest.Refusing(t))
	}, said{
		refused: true, page: "No endpoint of default/web answers over tcp (",
		metric: "dial_failed", alerts: []string{"KubeProxyClientsWithoutEndpoint", "KubeProxyServiceDown"},
		log: "was turned away: no endpoint of the 1 tried answers",
	}},
	{"all checks fail, and no endpoint answers", func(t *testing.T, s *stage) {
		s.service(t, `"haproxy.org/check":"true","haproxy.org/check-interval":"500ms"`)
		s.endpoints(t, "", proxytest.Refusing(t))
	}, said{
		refused: true, page: "No endpoint of default/web answers (",
		metric: "dial_failed", alerts: []string{"KubeProxyClientsWithoutEndpoint", "KubeProxyServiceDown"},
		log: "was turned away: no endpoint of the 1 tried answers",
	}},
	{"no endpoint is allowed", func(t *testing.T, s *stage) {
		s.args = append(s.args, "-allowed_endpoints=192.0.2.0/24")
		s.endpoints(t, "", s.chat(t))
	}, said{
		refused: true, page: "No endpoint of default/web is at an address that is allowed, so new clients of tcp port PORT are refused: write other endpoints, or change -allowed_endpoints.",
		metric: "endpoint_not_allowed", alerts: []string{"KubeProxyClientsWithoutEndpoint", "KubeProxyServiceRefusesClients"},
		log: registry.ErrNotAllowed.Error(), check: check.ForbiddenEndpoint,
	}},
	{"its policy is Local, and no endpoint is on the node", func(t *testing.T, s *stage) {
		s.args = append(s.args, "-node_name=here")
		at := s.chat(t).IP
		writeRecord(t, s.dir, registry.SpecsPrefix+"web", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"},"spec":{"ports":[{"port":%d}],"internalTrafficPolicy":"Local"}}`, s.port))
		writeRecord(t, s.dir, registry.EndpointsPrefix+"web", fmt.Sprintf(
			`{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"web"},"subsets":[{"addresses":[{"ip":%q,"nodeName":"there"}],"ports":[{"port":%d}]}]}`, at.Addr(), at.Port()))
	}, said{
		refused: true, page: "The traffic policy of default/web is Local, and it has no endpoint on this node, so new clients of tcp port PORT are refused: send its clients to nodes that have one.",
		metric: "no_local_endpoint", // no alert: load balancers are to send clients to other nodes
		log:    "was turned away: the traffic policy of the service is Local, and it has no endpoint on this node", check: check.NoLocalEndpoint,
	}},
	{"clients from outside get endpoints on the node only, those of the cluster get others", func(t *testing.T, s *stage) {
		s.args = append(s.args, "-node_name=here", "-service_address=cluster")
		at := s.chat(t).IP
		writeRecord(t, s.dir, registry.SpecsPrefix+"web", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"},
			"spec":{"type":"NodePort","clusterIP":"127.0.0.53","ports":[{"port":%[1]d,"nodePort":%[1]d}],"externalTrafficPolicy":"Local"}}`, s.port))
		writeRecord(t, s.dir, registry.EndpointsPrefix+"web", fmt.Sprintf(
			`{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"web"},"subsets":[{"addresses":[{"ip":%q,"nodeName":"there"}],"ports":[{"port":%d}]}]}`, at.Addr(), at.Port()))
	}, said{
		refused: true, page: "The traffic policy of default/web is Local, and it has no endpoint on this node, so new clients of tcp port PORT are refused: send its clients to nodes that have one.",
		metric: "no_local_endpoint", // no alert, as above
		log:    "was turned away: the traffic policy of the service is Local, and it has no endpoint on this node", check: check.NoLocalEndpoint,
	}},
	{"another service has its healthCheckNodePort", func(t *testing.T, s *stage) {
		port := proxytest.FreePort(t)
		s.local(t, "web", s.port, port)
		s.local(t, "a", proxytest.FreePort(t), port)
	}, said{
		page:   "Load balancers of default/web are told about default/a at healthCheckNodePort ",
		alerts: []string{"KubeProxyHealthPortNotOpen"},
		log:    "web and a have one healthCheckNodePort, ", check: check.HealthPortConflict,
	}},
	{"another program has its healthCheckNodePort", func(t *testing.T, s *stage) {
		s.local(t, "web", s.port, s.chat(t).IP.Port())
	}, said{
		page:   "of default/web is not open, so load balancers send its clients to other nodes: listen tcp 127.0.0.1:",
		alerts: []string{"KubeProxyHealthPortNotOpen"},
		log:    "cannot tell load balancers of endpoints of ",
	}},
	{"all endpoints are ports of the node", func(t *testing.T, s *stage) {
		s.endpoints(t, "", proxytest.At(proxytest.On(s.port)))
	}, said{
		refused: true, page: "All endpoints of default/web are ports of this node, so new clients of tcp port PORT are refused: write other endpoints.",
		metric: "own_listener", alerts: []string{"KubeProxyClientsWithoutEndpoint", "KubeProxyServiceRefusesClients"},
		log: "the endpoint is a listener of this proxy", check: check.OwnListener,
	}},
	{"no name of an endpoint is resolved", func(t *testing.T, s *stage) { // no nameserver is asked for .onion (RFC 7686)
		s.endpoints(t, "", registry.Addr{Host: "web.onion", IP: netip.AddrPortFrom(netip.Addr{}, 80)})
	}, said{
		refused: true, page: "The names of all endpoints of default/web are not resolved, so new clients of tcp port PORT are refused: correct the names, or /etc/resolv.conf of this node.",
		metric: "name_failed", alerts: []string{"KubeProxyClientsWithoutEndpoint", "KubeProxyServiceRefusesClients"},
		log: "no endpoint of the 1 tried answers: web.onion:80 (",
	}},
}

// TestEverySurfaceSaysWhatClientsFeel: page, status, metrics, alerts, log and check agree, in each state of a service.
func TestEverySurfaceSaysWhatClientsFeel(t *testing.T) {
	for _, c := range surfaceCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &stage{dir: t.TempDir(), port: proxytest.FreePort(t)}
			s.service(t, "")
			c.stage(t, s)
			address, url := operatorsURL(t)
			h := aHand(t)
			p := start(t, nil, append([]string{"-registry_dir=" + s.dir, "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address=" + address, "-control=" + h.path}, s.args...)...)
			awaitPage(t, url+"/readyz", http.StatusOK, "ok")
			at := proxytest.On(s.port)
			if s.busy {
				proxytest.TalkTo(t, at).MustSay(t, "hello")
			}
			proxytest.Eventually(t, func() bool {
				if !c.want.refused {
					proxytest.TalkTo(t, at).MustSay(t, "hello")
				} else if !proxytest.Refuses(at) { // as it is not before checks have failed
					return false
				}
				return metricOf(t, url) == c.want.metric
			}, "the metric has %q", c.want.metric)
			if c.want.log != "" {
				p.Stderr.Wait(t, c.want.log)
			}
			want := strings.ReplaceAll(c.want.page, "PORT", strconv.Itoa(int(s.port)))
			proxytest.Eventually(t, func() bool { return strings.Contains(verdictOf(t, url), want) }, "the page says %q; it says %q", want, verdictOf(t, url))
			h.agrees(url)
			if got := firing(t, url); !slices.Equal(got, c.want.alerts) {
				t.Errorf("the alerts %q fire; want %q", got, c.want.alerts)
			}
			var found []check.Code
			_, report := checked(t, append(s.args, s.dir)...)
			for _, v := range report.Records {
				for _, f := range v.Findings {
					found = append(found, f.Code)
				}
			}
			if want := slices.DeleteFunc([]check.Code{c.want.check}, func(c check.Code) bool { return c == "" }); !slices.Equal(found, want) {
				t.Errorf("the check finds %q; want %q", found, want)
			}
		})
	}
}

// service writes the record of the service, with annotations.
func (s *stage) service(t *testing.T, annotations string) {
	t.Helper()
	writeRecord(t, s.dir, registry.SpecsPrefix+"web", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"web","port":%d,"annotations":{%s}}`, s.port, annotations))
}

// local writes the records of a service that has an endpoint on the node, and tells load balancers so.
func (s *stage) local(t *testing.T, name string, port, healthCheck uint16) {
	t.Helper()
	s.args = []string{"-node_name=here", "-service_port=nodePort"}
	at := s.chat(t).IP
	writeRecord(t, s.dir, registry.SpecsPrefix+name, fmt.Sprintf(
		`{"kind":"Service","apiVersion":"v1","metadata":{"name":%q},"spec":{"ports":[{"port":80,"nodePort":%d}],"externalTrafficPolicy":"Local","healthCheckNodePort":%d}}`, name, port, healthCheck))
	writeRecord(t, s.dir, registry.EndpointsPrefix+name, fmt.Sprintf(
		`{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":%q},"subsets":[{"addresses":[{"ip":%q,"nodeName":"here"}],"ports":[{"port":%d}]}]}`, name, at.Addr(), at.Port()))
}

// endpoints writes the record of one endpoint, with a weight if there is one.
func (s *stage) endpoints(t *testing.T, weight string, at registry.Addr) {
	t.Helper()
	annotations := ""
	if weight != "" {
		annotations = fmt.Sprintf(`"kube-proxy/weight":%q`, weight)
	}
	writeRecord(t, s.dir, registry.EndpointsPrefix+"web", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"web","endpoints":[%q],"annotations":{%s}}`, at, annotations))
}

// chat is an endpoint that answers, and speaks no HTTP.
func (s *stage) chat(t *testing.T) registry.Addr {
	t.Helper()
	return proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("web")).Addr
}

// verdictOf returns the first sentence of the status page.
func verdictOf(t *testing.T, url string) string {
	t.Helper()
	_, page := see(t, url+"/")
	m := regexp.MustCompile(`(?s)<p id="verdict"[^>]*>(.*?)</p>`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no verdict: %s", page)
	}
	return strings.Join(strings.Fields(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[1], " "))), " ")
}

// metricOf returns the condition of the service "web" that the metrics have.
func metricOf(t *testing.T, url string) (condition string) {
	t.Helper()
	for _, s := range scraped(t, url) {
		if s.name == "kubeproxy_service_condition" && s.labels["service"] == "default/web" {
			condition += s.labels["condition"]
		}
	}
	return condition
}

// A sample is one line of the metrics.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

var label = regexp.MustCompile(`(\w+)(=~|=)"([^"]*)"`)

func scraped(t *testing.T, url string) (all []sample) {
	t.Helper()
	_, text := see(t, url+"/metrics")
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(\{.*\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
		s := sample{name: m[1], labels: make(map[string]string)}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = l[3]
		}
		s.value, _ = strconv.ParseFloat(m[3], 64)
		all = append(all, s)
	}
	return all
}

// comparison is an expression of one series and a number, or of the rate of counters.
var comparison = regexp.MustCompile(`^(?:sum by \([\w, ]+\) \( rate\()?(\w+)(\{.*?\})?(?:\[5m\]\))? (==|>) (\d+)$`)

// firing returns the alerts that would fire for a node that goes on as it is: those for which a comparison holds, or one of several. Another one may
// have to hold beside it, or must not. A rate is more than zero if its counter has counted. promtool tests the other alerts, and how long it takes.
func firing(t *testing.T, url string) (names []string) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(monitoringFile(t, "alerts.yml")), &file); err != nil {
		t.Fatal(err)
	}
	samples := scraped(t, url)
	holds := func(expr string) bool {
		m := comparison.FindStringSubmatch(expr)
		if m == nil {
			t.Fatalf("%q is not understood", expr)
		}
		number, _ := strconv.ParseFloat(m[4], 64)
		return slices.ContainsFunc(samples, func(s sample) bool {
			return s.name == m[1] && s.matches(m[2]) && (m[3] == "==" && s.value == number || m[3] == ">" && s.value > number)
		})
	}
	read := 0
	for _, r := range file.Groups[0].Rules {
		fires := false
		for part := range strings.SplitSeq(strings.Join(strings.Fields(r.Expr), " "), " or ") {
			part, except, _ := strings.Cut(part, " unless ")
			part, also, _ := strings.Cut(part, " and ")
			if !comparison.MatchString(part) {
				continue
			}
			read++
			fires = fires || holds(part) && (also == "" || holds(also)) && (except == "" || !holds(except))
		}
		if fires {
			names = append(names, r.Alert)
		}
	}
	if read < 15 {
		t.Fatalf("only %d comparisons were understood", read)
	}
	slices.Sort(names)
	return names
}

// matches reports whether the sample has the labels of a selector.
func (s *sample) matches(selector string) bool {
	return !slices.ContainsFunc(label.FindAllStringSubmatch(selector, -1), func(l []string) bool {
		if l[2] == "=" {
			return s.labels[l[1]] != l[3]
		}
		return !regexp.MustCompile(`^(?:` + l[3] + `)$`).MatchString(s.labels[l[1]])
	})
}
