package statuspage

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/recordtext"
	"kubeproxy/cmd/internal/statuspage/files"
	"kubeproxy/config"
	"kubeproxy/proxy"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

func TestMain(m *testing.M) {
	if err := flag.Set("logtostderr", "true"); err != nil { // glog's: a log file would look like a leak
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// get asks for a page as a browser does.
func get(t testing.TB, p *Page, target string) *httptest.ResponseRecorder {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	handler := p.Handlers()[u.Path]
	if handler == nil {
		handler = p.Files()[u.Path]
	}
	if handler == nil {
		t.Fatalf("there is no page %s", u.Path)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, target, nil))
	return answer
}

// elementText returns the text of the element with an id.
func elementText(t testing.TB, page, id string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if attribute(n, "id") == id {
			var b strings.Builder
			for d := range n.Descendants() {
				if d.Type == html.TextNode {
					b.WriteString(d.Data + " ")
				}
			}
			return strings.Join(strings.Fields(b.String()), " ")
		}
	}
	t.Fatalf("the page has no element %q", id)
	return ""
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// rowHeads returns the ports that the first page lists.
func rowHeads(page string) (all []string) {
	for _, m := range regexp.MustCompile(`<tr id="(\w+-\d+)`).FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestTheFirstSentenceNamesWhatIsWrongAndWhatToDo(t *testing.T) {
	web := registry.Name{Namespace: "default", Name: "web"}
	other := registry.PortKey{Name: registry.Name{Namespace: "default", Name: "other"}}
	for _, c := range []struct {
		name  string
		fault func(*site)
		want  []string
	}{
		{"all is well", func(*site) {}, []string{"All is well."}},
		{"a record is broken", func(s *site) {
			s.sources[0].(*fakeSource).status.Rejections = []config.Rejection{{Key: registry.SpecsPrefix + "web", Reason: "no port", Revision: 7}}
		}, []string{registry.SpecsPrefix + "web", "no port", "revision 7", "Write it anew", "its last good version stays in force", "default/web"}},
		{"a record was never good", func(s *site) {
			s.sources[0].(*fakeSource).status.Rejections = []config.Rejection{{Key: registry.SpecsPrefix + "new", Reason: "no port", Revision: 7}}
		}, []string{registry.SpecsPrefix + "new", "so there is no such service"}},
		{"a record cannot be read", func(s *site) {
			s.sources[0].(*fakeSource).status.Rejections = []config.Rejection{{Key: registry.SpecsPrefix + "web", Reason: "permission denied", Unread: true}}
		}, []string{"permission denied", "chmod", "its last good version stays in force"}},
		{"instances whose leases have ended are kept", func(s *site) {
			s.sources[0].(*fakeSource).status.Kept = 2
		}, []string{"Instances of 2 services", "etcd does not hold any more", "for five minutes"}},
		{"records are encrypted", func(s *site) {
			s.sources[0].(*fakeSource).status.Rejections = []config.Rejection{{Key: registry.SpecsPrefix + "a", Encrypted: true, Reason: "encrypted: use -master"}, {Key: registry.SpecsPrefix + "b", Encrypted: true}}
		}, []string{registry.SpecsPrefix + "a is refused", "use -master", "all that an API server encrypts"}},
		{"a record has a warning", func(s *site) {
			s.sources[0].(*fakeSource).status.Warnings = []config.Warning{{Key: registry.EndpointsPrefix + "web", Text: "left out: no port", More: 2}}
		}, []string{registry.EndpointsPrefix + "web", "left out: no port, and 2 other warnings", "kube-proxy check", "default/web"}},
		{"all services go", func(s *site) {
			st := &s.sources[0].(*fakeSource).status
			st.Services, st.Loss, s.ports = 0, config.Loss{At: time.Now().Add(-2 * time.Hour), Held: 7}, nil
		}, []string{"etcd holds no service since ", "held 7 before; no port is open", "Put the records back"}},
		{"most services go", func(s *site) {
			s.sources[0].(*fakeSource).status.Loss = config.Loss{At: time.Now().Add(-50 * time.Minute), Held: 50}
		}, []string{"etcd lost services at once at ", "49 of 50 are missing", "Put the records back"}},
		{"most services went long ago", func(s *site) {
			s.sources[0].(*fakeSource).status.Loss = config.Loss{At: time.Now().Add(-2 * time.Hour), Held: 50}
		}, []string{"All is well."}},
		{"the registry is empty", func(s *site) {
			s.sources[0].(*fakeSource).status.Services, s.ports = 0, nil
		}, []string{"The registry holds no service: write a record to /registry/services/specs/NAME"}},
		{"the directory is empty", func(s *site) {
			s.sources[0].(*fakeSource).status.Services, s.sources[0].(*fakeSource).name, s.ports = 0, "files", nil
		}, []string{"The registry holds no service", "one to /registry/services/endpoints/NAME, below the directory of -registry_dir"}},
		{"all files go", func(s *site) {
			from := s.sources[0].(*fakeSource)
			from.name, from.status.Services, from.status.Loss, s.ports = "files", 0, config.Loss{At: time.Now().Add(-2 * time.Hour), Held: 7}, nil
		}, []string{"The directory of -registry_dir holds no service since ", "held 7 before"}},
		{"a directory was never there", func(s *site) {
			from := s.sources[0].(*fakeSource)
			from.name, from.status = "files", config.Status{Cause: "missing", Reason: "directory /x: no such file or directory"}
		}, []string{"Nothing has been read from the directory of -registry_dir yet: directory /x: no such file"}},
		{"a directory goes", func(s *site) {
			from := s.sources[0].(*fakeSource)
			from.name, from.status.Connected, from.status.Cause, from.status.Reason = "files", false, "missing", "directory /x: no such file or directory"
		}, []string{"The directory of -registry_dir cannot be read since ", "mount its volume"}},
		{"a service has no endpoints", func(s *site) { s.endpoints[registry.PortKey{Name: web}] = nil },
			[]string{"default/web has no endpoints, and the next client of tcp port 1000 will be turned away: write endpoints"}},
		{"services have no endpoints", func(s *site) {
			s.endpoints[s.add(registry.Name{Namespace: "default", Name: "db"}, 1001)], s.endpoints[registry.PortKey{Name: web}] = nil, nil
		}, []string{"2 ports have no endpoints, such as tcp port 1000 of default/web", "Services without endpoints"}},
		{"an endpoint is down", func(s *site) { s.fail(web, 0) },
			[]string{"10.1.0.0:80", "default/web", "since ", "start it, or remove it", "until a client reaches it", "-check_endpoints"}},
		{"an endpoint that is checked is down", func(s *site) {
			s.fail(web, 0)
			s.endpoints[registry.PortKey{Name: web}][0].Checked = true
		}, []string{"remove it from the record. "}},
		{"an endpoint fails its checks", func(s *site) { s.failCheck(web, 0) },
			[]string{"Endpoint 10.1.0.0:80 of default/web fails its checks since ", ", no answer in time, and clients get another: start or repair it, or remove it from the record."}},
		{"two of three endpoints fail their checks", func(s *site) {
			key := registry.PortKey{Name: web}
			s.endpoints[key] = append(s.endpoints[key], s.endpoints[key][0])
			s.failCheck(web, 0)
			s.failCheck(web, 1)
		}, []string{"2 of 3 endpoints of default/web fail, 10.1.0.0:80 since ", ": no answer in time: start or repair them"}},
		{"checks have no place", func(s *site) {
			s.overdue = checks.Overdue{Number: 3, Longest: addr(0), Of: web, Busiest: other.Name}
		}, []string{"Checks are overdue, such as those of 10.1.0.0:80 of default/web, ", "Most checks under way are of default/other: repair or remove"}},
		{"the kernel may carry nothing", func(s *site) {
			s.kernel = &kernel.Status{Off: errors.New("it takes CAP_NET_ADMIN"), Ports: []int{kernel.Off: 2, kernel.InDoubt: 0}}
		}, []string{"-kernel=auto carries no port in the kernel: it takes CAP_NET_ADMIN. Userspace serves all clients."}},
		{"checks wait for a look-up", func(s *site) { s.overdue = checks.Overdue{Number: 3, Longest: addr(0), Of: web, LookUp: true} },
			[]string{"Checks are overdue", "The look-up of that name has not ended: repair the DNS"}},
		{"checks have no descriptor", func(s *site) { s.overdue = checks.Overdue{Number: 3, Longest: addr(0), Of: web} },
			[]string{"Checks are overdue", "None is under way: raise the descriptor limit"}},
		{"all endpoints fail their checks", func(s *site) { s.failCheck(web, 0); s.failCheck(web, 1) },
			[]string{"All endpoints of default/web fail their checks (10.1.0.0:80 since ", ": no answer in time), so clients are given all of them", "correct the check"}},
		{"all endpoints fail their checks, or clients", func(s *site) { s.fail(web, 0); s.failCheck(web, 1) },
			[]string{"All endpoints of default/web fail their checks (10.1.0.1:80 since "}},
		{"all endpoints have weight 0", func(s *site) { s.drain(web) },
			[]string{"All endpoints of default/web have weight 0, so new clients of tcp port 1000 are refused: give one a weight."}},
		{"all endpoints are down", func(s *site) { s.fail(web, 0); s.fail(web, 1) }, []string{"No endpoint of default/web answers", "start one of them"}},
		{"clients of a service without endpoints come", func(s *site) {
			s.endpoints[registry.PortKey{Name: web}] = nil
			s.totals[0].Ended[traffic.NoEndpoints] = 1
		}, []string{"default/web has no endpoints", "tcp port 1000 were turned away", "write endpoints"}},
		{"nobody holds a key", func(s *site) {
			s.endpoints[registry.PortKey{Name: web}] = nil
			s.totals[0].Ended[traffic.NoEndpoints] = 1
			s.elect(config.Election{Key: "/service/pg/leader", Elects: []registry.Name{web, other.Name}, Changes: []config.HolderChange{{Revision: 57, At: time.Now()}}})
		}, []string{"Nobody holds key /service/pg/leader since ", "(revision 57): clients of default/web are refused or wait.", "Elections"}},
		{"nobody holds a key, and replicas serve", func(s *site) {
			s.elect(config.Election{Key: "/service/pg/leader", Services: `"web"`, Elects: []registry.Name{web}})
		}, []string{"Nobody holds key /service/pg/leader since ", `"web" has endpoints all the same`}},
		{"a key that elects cannot be used", func(s *site) {
			s.elect(config.Election{Key: "/service/pg/leader", Holder: "m1", Unusable: 1, Rejected: []string{`"/service/pg/members/m2": no conn_url`}})
		}, []string{`A key that elects endpoints cannot be used: "/service/pg/members/m2": no conn_url. What it said before stays`}},
		{"a port is in conflict", func(s *site) { s.ports[0].Waiting = []registry.PortKey{other} },
			[]string{"default/other waits for tcp port 1000, which default/web has", "give one of them another port"}},
		{"a port cannot be opened", func(s *site) { s.ports[0].Err = errors.New("another program has it") },
			[]string{"tcp port 1000 of default/web is not open", "another program has it", "Free the port (ss -lnp"}},
		{"a port takes a capability", func(s *site) { s.ports[0].Err = os.NewSyscallError("bind", syscall.EACCES) },
			[]string{"is not open: bind: permission denied", "CAP_NET_BIND_SERVICE"}},
		{"no descriptor is left for a port", func(s *site) { s.ports[0].Err = admit.ErrNoDescriptors }, []string{"LimitNOFILE"}},
		{"a port is refused", func(s *site) {
			s.ports = append(s.ports, proxy.PortStatus{ID: registry.ListenerID{Number: 22}, Waiting: []registry.PortKey{other}, Refused: true, Err: errors.New("outside -allowed_ports")})
		}, []string{"default/other may not have tcp port 22", "-allowed_ports"}},
		{"etcd is away", func(s *site) {
			st := &s.sources[0].(*fakeSource).status
			st.Connected, st.Reason = false, "connection refused"
		}, []string{"etcd cannot be read since", "connection refused", "revision 42", "Check that it runs"}},
		{"etcd was never there", func(s *site) { s.sources[0].(*fakeSource).status = config.Status{Reason: "connection refused"} },
			[]string{"Nothing has been read from etcd yet", "connection refused", "Check that it runs"}},
		{"a directory is away", func(s *site) {
			st := &s.sources[0].(*fakeSource).status
			st.Connected, st.Cause, st.Reason = false, "missing", "directory /x: no such file or directory"
		}, []string{"cannot be read since", "no such file", "mount its volume"}},
		{"a directory is forbidden", func(s *site) {
			s.sources[0].(*fakeSource).status = config.Status{Cause: "unreadable", Reason: "directory /x: permission denied"}
		}, []string{"Nothing has been read from", "permission denied", "chmod"}},
		{"what is served is old", func(s *site) {
			s.sources[0].(*fakeSource).status.Current = time.Now().Add(-time.Hour)
		}, []string{"What etcd holds was last confirmed at"}},
		{"what is served is older than it may be", func(s *site) { s.maxAge = time.Minute }, []string{"The node is not ready", "-config_max_age is 1m0s"}},
		{"the saved state is served", func(s *site) { s.stale = true }, []string{"a state that it saved at"}},
		{"a limit is near", func(s *site) { s.limits[0].Used = 90 }, []string{"The limit of connections is nearly reached", "-max_connections"}},
		{"a loop stands still", func(s *site) { s.live = errors.New("event loop 1 has stood still for 7s") }, []string{"event loop 1", "Restart kube-proxy"}},
		{"a reload failed", func(s *site) { s.upgrade = errors.New("it ended: exit status 2") },
			[]string{"A reload failed at ", "(it ended: exit status 2)", "of before stay in force", "reload again"}},
		{"the node leaves", func(s *site) { s.leaving = true }, []string{"told to stop", "not ready", "-stop_grace"}},
		{"the node drains", func(s *site) { s.stopping = true }, []string{"told to stop", "-drain_timeout"}},
		{"a route to addresses of services is missing", func(s *site) { s.routesMissing = errors.New("it takes CAP_NET_ADMIN") }, []string{"The node does not answer for all ranges of -service_cidr", "it takes CAP_NET_ADMIN."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(0)
			s.add(web, 1000)
			c.fault(s)
			page := get(t, s.page(t), "/").Body.String()
			got := elementText(t, page, "verdict")
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("the first sentence is %q; want it to say %q", got, want)
				}
			}
		})
	}
}

// A fault that clients feel comes before one that only holds up changes, and that one before a warning, whatever else is wrong.
func TestTheFirstSentenceIsAboutWhatClientsFeel(t *testing.T) {
	web, db := registry.Name{Namespace: "default", Name: "web"}, registry.Name{Namespace: "default", Name: "db"}
	s := newSite(0)
	s.add(web, 1000)
	s.add(db, 1001)
	first := func(want string) {
		t.Helper()
		if got := elementText(t, get(t, s.page(t), "/").Body.String(), "verdict"); !strings.Contains(got, want) {
			t.Errorf("the first sentence is %q; want it to say %q", got, want)
		}
	}
	s.fail(db, 0)
	first("Endpoint 10.1.0.0:80 of default/db does not answer")
	st := &s.sources[0].(*fakeSource).status
	st.Connected, st.Reason = false, "connection refused"
	first("etcd cannot be read since")
	s.drain(web)
	first("etcd cannot be read since")
	s.totals[0].Ended[traffic.ZeroWeight] = 1
	first("All endpoints of default/web have weight 0")
	s.endpoints[registry.PortKey{Name: web}][0].Weight, s.totals[0].Ended[traffic.ZeroWeight] = 1, 0
	s.failCheck(web, 0)
	first("etcd cannot be read since")
	s.endpoints[registry.PortKey{Name: web}][0].CheckError = ""
	first("No endpoint of default/web answers")
}

// Only where endpoints are given out in turn, the next one is known before its client comes.
func TestTheNextEndpointIsMarkedWhereThereIsATurn(t *testing.T) {
	web := registry.Name{Namespace: "default", Name: "web"}
	for _, algorithm := range registry.Balances() {
		marked := algorithm == registry.RoundRobin
		for _, ofService := range []bool{true, false} {
			s := newSite(0)
			s.add(web, 1000)
			if ofService {
				s.services[web].SetTerms(registry.Terms{Balance: algorithm})
			} else {
				s.algorithm = algorithm
			}
			page := get(t, s.page(t), "/status/service?name=default/web").Body.String()
			if got := strings.Contains(page, `<span class="tag">next</span>`); got != marked {
				t.Errorf("%v: the next endpoint is marked: %t", algorithm, got)
			}
			if got := elementText(t, page, "record"); !strings.Contains(got, "Chosen by "+algorithm.String()) {
				t.Errorf("the page does not say that endpoints are chosen by %v: %s", algorithm, got)
			}
		}
	}
}

// Checks and the header of the PROXY protocol are seen to be in force.
func TestAServiceShowsItsChecksAndItsHeader(t *testing.T) {
	web := registry.Name{Namespace: "default", Name: "web"}
	s := newSite(0)
	s.add(web, 1000)
	shown := func(id, want string) {
		t.Helper()
		if got := elementText(t, get(t, s.page(t), "/status/service?name=default/web").Body.String(), id); !strings.Contains(got, want) {
			t.Errorf("%s is %q; want it to have %q", id, got, want)
		}
	}
	shown("record", "Checks of endpoints none PROXY header none")
	s.services[web].SetTerms(registry.Terms{ProxyHeader: registry.ProxyV1})
	s.endpoints[registry.PortKey{Name: web}][0].Checked = true
	shown("record", "Checks of endpoints a connection PROXY header proxy-v1")
	s.services[web].SetTerms(registry.Terms{Checks: registry.Check{Path: "/healthz", Interval: 2 * time.Second}})
	shown("record", "Checks of endpoints a GET of /healthz every 2s")
}

// The page of a service has both records in force, whichever keys the endpoints come from.
func TestAServiceShowsItsEndpointsInForce(t *testing.T) {
	web := registry.Name{Namespace: "default", Name: "web"}
	s := newSite(0)
	s.add(web, 1000)
	record := elementText(t, get(t, s.page(t), "/status/service?name=default/web").Body.String(), "record")
	if want := `Endpoints in force { "kind": "Endpoints", "apiVersion": "v1beta1", "id": "web", "endpoints": [ "10.1.0.0:80", "10.1.0.1:80" ] }`; !strings.Contains(record, want) {
		t.Errorf("the record is %s; want %s", record, want)
	}
	if got, want := recordtext.Endpoints(web, []recordtext.Subset{{Port: "http", Endpoints: []string{"a:1"}, More: 2}, {Endpoints: []string{}}}),
		`{"id":"web","ports":[{"port":"http","endpoints":["a:1"],"more":2},{"endpoints":[]}]}`; strings.Join(strings.Fields(got), "") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A weight is in the row of its endpoint, and in the record in force, once for all ports of its address.
func TestTheWeightsOfEndpointsAreShown(t *testing.T) {
	web := registry.Name{Namespace: "default", Name: "web"}
	s := newSite(0)
	key := s.add(web, 1000)
	s.endpoints[key][0].Weight, s.endpoints[key][1].Weight = 0, 5
	page := get(t, s.page(t), "/status/service?name=default/web").Body.String()
	rows := elementText(t, page, "rotations")
	for _, want := range []string{"10.1.0.0:80 gets no new clients: its weight is 0 0 1 ", "10.1.0.1:80 answers 5 1 "} {
		if !strings.Contains(rows, want) {
			t.Errorf("the rows are %s; want %q in them", rows, want)
		}
	}
	if strings.Contains(rows, "next") {
		t.Errorf("an endpoint of weight 0 is said to be the next one: %s", rows)
	}
	if record, want := elementText(t, page, "record"), `"annotations": { "kube-proxy/weight": "10.1.0.0:80=0,10.1.0.1:80=5" }`; !strings.Contains(record, want) {
		t.Errorf("the record is %s; want %s in it", record, want)
	}
	two := recordtext.NewSubset("http", s.endpoints[key][1:], 1)
	if got, want := recordtext.Endpoints(web, []recordtext.Subset{two, two}), `"annotations":{"kube-proxy/weight":"10.1.0.1:80=5"}`; !strings.Contains(strings.Join(strings.Fields(got), ""), want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
}

// fail has an endpoint of a service not answer.
func (s *site) fail(name registry.Name, i int) {
	s.endpoints[registry.PortKey{Name: name}][i].FailingSince = time.Now()
}

// drain has all endpoints of a service get no new clients.
func (s *site) drain(name registry.Name) {
	for i := range s.endpoints[registry.PortKey{Name: name}] {
		s.endpoints[registry.PortKey{Name: name}][i].Weight = 0
	}
}

// failCheck has an endpoint accept clients, and fail its checks.
func (s *site) failCheck(name registry.Name, i int) {
	s.fail(name, i)
	e := &s.endpoints[registry.PortKey{Name: name}][i]
	e.Checked, e.CheckError = true, "no answer in time"
}

func TestManyProblemsAreSummedUp(t *testing.T) {
	s := newSite(1000)
	for i := range s.ports {
		s.ports[i].Err = errors.New("another program has it")
	}
	page := get(t, s.page(t), "/").Body.String()
	if got := strings.Count(page, "is not open:"); got != maxProblems-1 {
		t.Errorf("%d problems are listed; want %d", got, maxProblems-1)
	}
	if want := "There are 993 more problems of this kind."; !strings.Contains(elementText(t, page, "more"), want) {
		t.Errorf("the page does not say %q", want)
	}
}

func TestRowsAreFilteredSortedAndPagedByTheServer(t *testing.T) {
	s := newSite(250)
	s.ports[7].Waiting = []registry.PortKey{{Name: registry.Name{Namespace: "default", Name: "rival"}}}
	s.totals[9].Active = 99
	s.endpoints[s.ports[11].Owner] = nil
	s.sources[0].(*fakeSource).status.Rejections = []config.Rejection{{Key: registry.SpecsPrefix + "service-00013", Reason: "no port"}}
	s.sources[0].(*fakeSource).status.Warnings = []config.Warning{{Key: registry.EndpointsPrefix + "service-00017", Text: "no port"}}
	p := s.page(t)
	ids := func(first, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("tcp-%d", 1000+first+i))
		}
		return all
	}
	s.endpoints[s.ports[40].Owner][1].Addr = registry.Addr{Host: "db-1.example", IP: netip.AddrPortFrom(netip.Addr{}, 5432)}
	brokenFirst := append([]string{"tcp-1007", "tcp-1013", "tcp-1017"}, slices.Concat(ids(0, 7), ids(8, 5), ids(14, 3), ids(18, 82))...)
	for _, c := range []struct {
		target string
		want   []string
		pager  string
	}{
		{"/", brokenFirst, "1–100 of 250 Next"},
		{"/?dir=down", brokenFirst, "1–100 of 250 Next"},
		{"/?sort=port", ids(0, 100), "1–100 of 250 Next"},
		{"/?sort=port&page=2", ids(100, 100), "Previous 101–200 of 250 Next"},
		{"/?page=2", ids(100, 100), "Previous 101–200 of 250 Next"},
		{"/?q=DB-1.example:5432", ids(40, 1), "1–1 of 1"},
		{"/?q=10.1.0.1:8", slices.Concat([]string{"tcp-1007", "tcp-1013", "tcp-1017"}, ids(0, 7), ids(8, 3), ids(12, 1), ids(14, 3), ids(18, 22), ids(41, 61)), "1–100 of 248 Next"},
		{"/?q=10.9.", nil, "0–0 of 0"},
		{"/?page=3", ids(200, 50), "Previous 201–250 of 250"},
		{"/?page=99999", ids(200, 50), "Previous 201–250 of 250"},
		{"/?page=-1&sort=nonsense&show=nonsense", brokenFirst, "1–100 of 250 Next"},
		{"/?q=service-0012", ids(120, 10), "1–10 of 10"},
		{"/?q=1017", ids(17, 1), "1–1 of 1"},
		{"/?q=RIVAL", ids(7, 1), "1–1 of 1"},
		{"/?q=nothing", nil, "0–0 of 0"},
		{"/?show=problems", []string{"tcp-1007", "tcp-1013", "tcp-1017"}, "1–3 of 3"},
		{"/?show=empty", ids(11, 1), "1–1 of 1"},
		{"/?show=busy&sort=active&dir=down&q=service-0000", append([]string{"tcp-1009"}, ids(0, 9)...), "1–10 of 10"},
	} {
		page := get(t, p, c.target).Body.String()
		if got := rowHeads(page); !slices.Equal(got, c.want) {
			t.Errorf("%s lists %v; want %v", c.target, got, c.want)
		}
		if got := elementText(t, page, "pager"); got != c.pager {
			t.Errorf("%s says %q; want %q", c.target, got, c.pager)
		}
	}
	if page := get(t, p, "/?sort=service&dir=down").Body.String(); rowHeads(page)[0] != "tcp-1249" || !strings.Contains(page, `aria-sort="descending"`) {
		t.Errorf("sorted by service, downwards, the first row is %s", rowHeads(page)[0])
	}
	if page := get(t, p, "/?q=service-00&page=1").Body.String(); !strings.Contains(page, `href="/?dir=down&amp;q=service-00&amp;sort=active"`) {
		t.Error("the links that sort forget the filter")
	}
}

// TestAPageOfTenThousandServicesIsSmall: 100 kB at most, however many problems there are.
func TestAPageOfTenThousandServicesIsSmall(t *testing.T) {
	s := newSite(10_000)
	p := s.page(t)
	well := get(t, p, "/").Body.Len()
	for i := range s.ports {
		s.fail(s.ports[i].Owner.Name, 1)
		s.ports[i].Waiting = []registry.PortKey{{Name: registry.Name{Namespace: "default", Name: fmt.Sprintf("rival-of-%d", i)}}}
	}
	p.Close()
	broken := get(t, p, "/?show=problems&page=50").Body
	if n := len(rowHeads(broken.String())); n != pageRows {
		t.Errorf("the page lists %d rows; want %d", n, pageRows)
	}
	if well > 100_000 || broken.Len() > 100_000 {
		t.Errorf("the page takes %d bytes, and %d with problems in each row; want 100,000 at most", well, broken.Len())
	}
}

func TestEachAnswerForbidsWhatThePageDoesNotNeed(t *testing.T) {
	s := newSite(1)
	p := s.page(t)
	for _, target := range []string{"/", "/status/service?name=default%2Fservice-00000", "/status/service?name=none", "/status/endings",
		"/status/style.css", "/status/script.js", "/status/icon.svg"} {
		header := get(t, p, target).Header()
		for name, want := range map[string]string{
			"Content-Security-Policy": files.Policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s has %s: %q; want %q", target, name, got, want)
			}
		}
	}
	if script, err := os.ReadFile("files/script.js"); err != nil || len(script) > 10_000 {
		t.Errorf("the script takes %d bytes, %v; want 10,000 at most", len(script), err)
	}
}

// TestTextsFromOutsideAreInert: whatever names, reasons and addresses say, a page has no script, no style and no link but its own.
func TestTextsFromOutsideAreInert(t *testing.T) {
	hostile := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `javascript:alert(1)`, `' onmouseover='alert(1)`,
		"\x00\x1b[2J\u202e", "{{.}}", "</title></svg></textarea><iframe>", "&lt;b&gt;", strings.Repeat("<b>", 80), "\xff\xfe",
	}
	s := newSite(0)
	for i, text := range hostile {
		name := strings.ReplaceAll(text, "/", "|") // no key of a record has one in a name
		key := s.add(registry.Name{Namespace: name, Name: name}, uint16(1000+i))
		key.Port = text
		s.ports[i].Owner, s.ports[i].Waiting, s.ports[i].Err = key, []registry.PortKey{key}, errors.New(text)
		s.endpoints[key] = []rotation.EndpointStatus{{Service: key, Addr: registry.Addr{Host: text}, Weight: 1, FailingSince: time.Now()}, {Service: key, Addr: addr(1), Weight: 1}}
		s.endings.Record(traffic.Ending{Service: key, Endpoint: registry.Addr{Host: text}})
		s.changes.Note(history.Entry{Source: text, Service: name + "/" + name, Of: text, Change: text})
		s.clients = append(s.clients, traffic.Client{Service: key, Endpoint: registry.Addr{Host: text}, ClientState: text, EndpointState: text})
		st := &s.sources[0].(*fakeSource).status
		st.Rejections = append(st.Rejections, config.Rejection{Key: registry.SpecsPrefix + text, Reason: text})
		st.Warnings = append(st.Warnings, config.Warning{Key: registry.SpecsPrefix + text, Text: text})
		for _, holder := range []string{text, ""} {
			s.elect(config.Election{Key: text, Holder: holder, Services: text, Elects: []registry.Name{key.Name}, Out: []string{text}, Rejected: []string{text}, Changes: []config.HolderChange{{Holder: text}}})
		}
		s.sources = append(s.sources, &fakeSource{text, config.Status{Reason: text, Cluster: text}})
	}
	p := s.page(t)
	targets := []string{"/", "/status/endings", "/status/changes", "/?q=" + url.QueryEscape(hostile[1])}
	for name := range s.services {
		targets = append(targets, serviceHref(name))
	}
	for _, target := range targets {
		answer := get(t, p, target)
		if answer.Code != http.StatusOK {
			t.Errorf("%s is answered with %d", target, answer.Code)
		}
		root, err := html.Parse(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		for n := range root.Descendants() {
			if n.Type == html.ElementNode {
				checkElement(t, target, n)
			}
		}
	}
}

// checkElement checks that one element is the page's own.
func checkElement(t *testing.T, target string, n *html.Node) {
	t.Helper()
	switch n.Data {
	case "iframe", "img", "object", "embed", "style", "base", "b":
		if n.Data != "b" || attribute(n.Parent.Parent, "class") != "lines" {
			t.Errorf("%s has an element %s", target, n.Data)
		}
	case "script":
		if attribute(n, "src") != "/status/script.js" || n.FirstChild != nil {
			t.Errorf("%s has a script of its own", target)
		}
	}
	for _, a := range n.Attr {
		switch {
		case strings.HasPrefix(a.Key, "on"), a.Key == "style":
			t.Errorf("%s has an attribute %s=%q", target, a.Key, a.Val)
		case a.Key == "href", a.Key == "src", a.Key == "action":
			if !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") || strings.HasPrefix(a.Val, "//") {
				t.Errorf("%s has a link to %q", target, a.Val)
			}
		}
	}
}

func TestThePageOfAServiceShowsAllThatIsKnownOfIt(t *testing.T) {
	s := newSite(0)
	web := registry.Name{Namespace: "default", Name: "web"}
	key := s.add(web, 1000)
	s.services[web].SetTerms(registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: time.Hour})
	s.fail(web, 1)
	s.totals[0].Ended[traffic.ClientReset] = 1234
	s.ports[0].Waiting = []registry.PortKey{{Name: registry.Name{Namespace: "default", Name: "rival"}}}
	s.sources[0].(*fakeSource).status.Rejections = []config.Rejection{{Key: registry.SpecsPrefix + "web", Reason: "no port", Revision: 7,
		Value: `{"kind":"Service","id":"web","port":808000,"protocol":"tcp","labels":{"a":"b"},"sessionAffinity":"None"}`}}
	s.endings.Record(traffic.Ending{Service: key, Reason: traffic.ClientReset})
	s.endings.Record(traffic.Ending{Service: registry.PortKey{Name: registry.Name{Namespace: "default", Name: "x"}}, Reason: traffic.NoEndpoints})
	uid := 1000
	s.changes.Note(history.Entry{Time: time.Now(), Source: "etcd", Revision: 41, Service: "default/web", Of: "endpoints", Change: "+10.1.0.1:80", Corrected: true})
	s.changes.Note(history.Entry{Time: time.Now(), Source: history.Operator, UID: &uid, Service: "default/web", Of: "override", Change: "none → drained"})
	s.changes.Note(history.Entry{Time: time.Now(), Source: "etcd", Revision: 43, Service: "default/x", Of: "service", Change: "no_endpoints"})
	client := func(service registry.PortKey, from string, idle time.Duration) traffic.Client {
		return traffic.Client{Service: service, Client: netip.MustParseAddrPort(from), Endpoint: addr(0), Age: time.Minute, Idle: idle, Sent: 1500, ClientState: "ESTAB", EndpointState: "CLOSE-WAIT"}
	}
	for i := range 60 {
		s.clients = append(s.clients, client(key, fmt.Sprintf("192.0.2.1:%d", 5000+i), time.Duration(i)*time.Second))
	}
	s.clients = append(s.clients, client(registry.PortKey{}, "192.0.2.9:1", time.Hour)) // of another service
	s.clients[59].Endpoint = registry.Addr{}
	page := get(t, s.page(t), serviceHref(web)).Body.String()
	for id, wants := range map[string][]string{
		"verdict":    {"default/rival waits for tcp port 1000"},
		"ports-body": {"1000/tcp", "open; default/rival waits for it"},
		"rotations":  {"10.1.0.0:80", "answers", "10.1.0.1:80", "does not answer since"},
		"record":     {"the same endpoint for 1h0m0s", "Revision 7: no port", "port 1000 808000 differs", "protocol tcp tcp sessionAffinity ClientIP None differs", `"labels":{"a":"b"}`, `"port": 1000`},
		"reasons":    {"client_reset 1 1,234"},
		"sparklines": {"New per second"},
		"endings":    {"client_reset"},
		"changes":    {"operator, uid 1000 override default/web none → drained", "etcd, revision 41 found by a full list endpoints default/web +10.1.0.1:80"},
		"clients":    {"192.0.2.1:5059 tcp is looked for 1 min 0 s 59 s 1.5 kB 0 ESTAB, endpoint CLOSE-WAIT 192.0.2.1:5058 tcp 10.1.0.0:80", "192.0.2.1:5010 ", "and 10 more, which are less idle"},
	} {
		text := elementText(t, page, id)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s says %q; want %q in it", id, text, want)
			}
		}
		if strings.Contains(text, "no_endpoints") {
			t.Errorf("%s has an ending or a change of another service", id)
		}
	}
	if text := elementText(t, page, "clients"); strings.Contains(text, "192.0.2.1:5009") || strings.Contains(text, "192.0.2.9") {
		t.Errorf("clients that are less idle, or of another service, are shown: %q", text)
	}
	if text := elementText(t, get(t, s.page(t), "/status/changes").Body.String(), "changes"); !strings.Contains(text, "no_endpoints") || strings.Index(text, "revision 43") > strings.Index(text, "revision 41") {
		t.Errorf("the page of changes says %q; want all, the newest first", text)
	}
	if answer := get(t, s.page(t), "/status/service?name=default%2Fnobody"); answer.Code != http.StatusNotFound {
		t.Errorf("the page of a service that is not there is answered with %d", answer.Code)
	}
}

// BenchmarkOverview makes the first page of 10,000 services, each time from a new snapshot.
func BenchmarkOverview(b *testing.B) {
	p := newSite(10_000).page(b)
	for b.Loop() {
		p.Close()
		get(b, p, "/")
	}
}
