package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/check"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/internal/apiserver"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A sourceStage is one source of a node, which has a service "web", and what the node is told about it.
type sourceStage struct {
	port  uint16
	args  []string
	check []string // the arguments of the check; nil: the check does not read such a source
	fail  func()   // makes the fault that comes after the first state; nil: it is there from the start
}

// sourceCases are the faults of sources.
var sourceCases = []struct {
	name    string
	stage   func(*testing.T, *sourceStage)
	served  bool               // clients are, by what was read before
	page    []string           // parts of a sentence
	metrics map[string]float64 // with labels, and the least value
	away    bool               // the metrics say that a source does not answer
	kept    int                // services that /configz says are kept
	alerts  []string           // that would fire, sorted
	log     string             // part of a line
	check   []check.Code
}{
	{
		name: "an API server ends each watch at once", served: true, away: true,
		stage: func(t *testing.T, s *sourceStage) {
			s.fromAPIServer(t, func(e apiserver.Exchange) bool {
				if e.Watch {
					e.W.WriteHeader(http.StatusOK)
				}
				return e.Watch
			})
		},
		page:    []string{"cannot be read since ", ": watch ", ": the server ended it as soon as it had begun"},
		metrics: map[string]float64{`kubeproxy_etcd_session_ends_total{reason="brief"}`: 2}, // the first may be chance
		alerts:  []string{"KubeProxySourceAway"},
		log:     ": the server ended it as soon as it had begun",
	},
	{
		name: "the list of an API server has no end", away: true,
		stage: func(t *testing.T, s *sourceStage) {
			s.fromAPIServer(t, func(e apiserver.Exchange) bool {
				if e.Watch || e.Resource != "services" {
					return false
				}
				e.W.Header().Set("Content-Type", "application/json")
				fmt.Fprint(e.W, `{"metadata":{"resourceVersion":"5","continue":"again"},"items":[]}`)
				return true
			})
		},
		page:   []string{"Nothing has been read from ", " yet: list services: the list has no end: "},
		alerts: []string{"KubeProxyNotReady", "KubeProxySourceAway"},
		log:    "list services: the list has no end: ",
	},
	{
		name:    "a directory loses all services",
		stage:   func(t *testing.T, s *sourceStage) { s.fromFiles(t, registry.SpecsPrefix) },
		page:    []string{"The directory of -registry_dir holds no service since ", ", and held 4 before; no port is open. Put the records back"},
		metrics: map[string]float64{`kubeproxy_lost_services{left="none"}`: 4},
		alerts:  []string{"KubeProxyServicesLost"},
	},
	{
		name:    "a directory loses half of its services",
		stage:   func(t *testing.T, s *sourceStage) { s.fromFiles(t, registry.SpecsPrefix+"shop") },
		page:    []string{"The directory of -registry_dir lost services at once at ", ": 2 of 4 are missing. Put the records back"},
		metrics: map[string]float64{`kubeproxy_lost_services{left="some"}`: 2},
		alerts:  []string{"KubeProxyMostServicesLost"},
	},
	{
		name: "the leases of all instances have ended", served: true, kept: 1,
		stage: func(t *testing.T, s *sourceStage) {
			var etcd string
			etcd, s.fail = lapsing(t, s.port)
			s.args, s.check = []string{"-etcd_servers=" + etcd}, []string{"-etcd_servers=" + etcd}
		},
		page:    []string{"Instances of 1 service are in force that ", " does not hold any more: their leases have all ended"},
		metrics: map[string]float64{"kubeproxy_kept_services": 1},
		alerts:  []string{"KubeProxyInstancesKept"},
		log:     "endpoints of web: the leases of all its instances have ended; the last ones stay in force for 5m0s",
		check:   []check.Code{check.NoEndpoints},
	},
}

// TestEverySurfaceSaysWhatASourceLacks: page, status, metrics, alerts, log, /configz and check agree, in each fault of a source, and clients are
// served by what was read before.
func TestEverySurfaceSaysWhatASourceLacks(t *testing.T) {
	for _, c := range sourceCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &sourceStage{port: proxytest.FreePort(t)}
			c.stage(t, s)
			address, url := operatorsURL(t)
			h := aHand(t)
			p := start(t, nil, append(s.args, "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address="+address, "-control="+h.path)...)
			at := proxytest.On(s.port)
			if c.served || s.fail != nil {
				awaitPage(t, url+"/readyz", http.StatusOK, "ok")
			}
			if s.fail != nil {
				proxytest.TalkTo(t, at).MustSay(t, "hello")
				s.fail()
			}
			p.Stderr.Wait(t, c.log)
			for metric, least := range c.metrics {
				name, selector, _ := strings.Cut(metric, "{")
				proxytest.Eventually(t, func() bool {
					return slices.ContainsFunc(scraped(t, url), func(m sample) bool { return m.name == name && m.value >= least && m.matches(selector) })
				}, "the metric %s is at least %v", metric, least)
			}
			proxytest.Eventually(t, func() bool {
				return !slices.ContainsFunc(c.page, func(part string) bool { return !strings.Contains(verdictOf(t, url), part) })
			}, "the page says %q; it says %q", c.page, verdictOf(t, url))
			h.agrees(url)
			if c.served {
				proxytest.TalkTo(t, at).MustSay(t, "hello")
			} else if proxytest.Listens(at) {
				t.Error("a port is open, of a service that no source holds")
			}
			if !slices.ContainsFunc(scraped(t, url), func(m sample) bool { return m.name == "kubeproxy_etcd_connected" && (m.value == 0) == c.away }) {
				t.Errorf("kubeproxy_etcd_connected does not say that a source is away: %t", c.away)
			}
			if got := firing(t, url); !slices.Equal(got, c.alerts) {
				t.Errorf("the alerts %q fire; want %q", got, c.alerts)
			}
			if connected, kept := configzOf(t, url); connected == c.away || kept != c.kept {
				t.Errorf("/configz says that the source is connected: %t, and that %d services are kept; want %t and %d", connected, kept, !c.away, c.kept)
			}
			if s.check == nil {
				return
			}
			var found []check.Code
			_, report := checked(t, s.check...)
			for _, v := range report.Records {
				for _, f := range v.Findings {
					found = append(found, f.Code)
				}
			}
			if !slices.Equal(found, c.check) {
				t.Errorf("the check finds %q; want %q", found, c.check)
			}
		})
	}
}

// fromAPIServer has the node read an API server that answers some questions in a way of its own.
func (s *sourceStage) fromAPIServer(t *testing.T, answer func(apiserver.Exchange) bool) {
	t.Helper()
	api := apiserver.New(apiserver.V1)
	api.PutService("default", "web", int(s.port))
	api.PutEndpoints("default", "web", proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("web")).Addr.String())
	api.Break(answer)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	s.args = []string{"-master=" + server.URL}
}

// fromFiles has the node read a directory with the service and three others, of which a part is moved away.
func (s *sourceStage) fromFiles(t *testing.T, lost string) {
	t.Helper()
	dir := fourServices(t, s.port)
	s.args, s.fail = []string{"-registry_dir=" + dir}, func() { moveAway(t, dir, lost) }
}

// fourServices makes a directory with two namespaces of two services each. Of those of namespace "shop" one is "web".
func fourServices(t *testing.T, web uint16) (dir string) {
	t.Helper()
	dir = t.TempDir()
	at := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("web")).Addr.String()
	for _, name := range []string{"shop/web", "shop/api", "bank/web", "bank/api"} {
		port := web
		if name != "shop/web" {
			port = proxytest.FreePort(t)
		}
		writeRecord(t, dir, registry.SpecsPrefix+name, fmt.Sprintf(`{"port":%d}`, port))
		writeRecord(t, dir, registry.EndpointsPrefix+name, endpointsRecord(filepath.Base(name), at))
	}
	return dir
}

// moveAway takes a part of a directory of records away, in one step.
func moveAway(t *testing.T, dir, part string) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, part), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
}

// lapsing starts an etcd with a service "web" whose instance has a lease, which lapse ends.
func lapsing(t *testing.T, port uint16) (url string, lapse func()) {
	t.Helper()
	etcd := etcdtest.StartProcess(t)
	client := etcd.Client(t)
	lease, err := client.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	at := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("web")).Addr.IP
	slice := fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","metadata":{"labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4",
		"endpoints":[{"addresses":[%q]}],"ports":[{"port":%d}]}`, at.Addr(), at.Port())
	_, err = client.Put(t.Context(), registry.SpecsPrefix+"default/web", fmt.Sprintf(`{"port":%d}`, port))
	_, other := client.Put(t.Context(), registry.EndpointSlicesPrefix+"default/web-1", slice, clientv3.WithLease(lease.ID))
	if err := errors.Join(err, other); err != nil {
		t.Fatal(err)
	}
	return etcd.URL(), func() {
		t.Helper()
		if _, err := client.Revoke(t.Context(), lease.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// configzOf returns what /configz says of all sources together.
func configzOf(t *testing.T, url string) (connected bool, kept int) {
	t.Helper()
	_, text := see(t, url+"/configz")
	var page struct {
		Etcd struct {
			Connected bool
			Kept      int `json:"kept_services"`
		}
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return page.Etcd.Connected, page.Etcd.Kept
}
