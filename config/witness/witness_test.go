package witness

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

const key = "/service/pg/leader"

// An etcd is a source that says what a test has it say.
type etcd struct {
	mu       sync.Mutex
	current  time.Time
	revision int64
	holder   string
	others   []config.Election // before that of the test
	behind   []config.Election // and after it
	say      chan registry.Update
}

func (e *etcd) Name() string { return "etcd" }
func (e *etcd) Resync()      {}

func (e *etcd) Run(ctx context.Context, out chan<- registry.Update) error {
	for {
		select {
		case u := <-e.say:
			out <- u
		case <-ctx.Done():
			return nil
		}
	}
}

func (e *etcd) Status() config.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := append(slices.Clone(e.others), config.Election{Key: key, Holder: e.holder, API: "http://10.0.0.1:8008", TTL: 5 * time.Second})
	return config.Status{Current: e.current, Revision: e.revision, Elections: append(all, e.behind...)}
}

// answers notes that etcd has answered now.
func (e *etcd) answers() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = time.Now()
}

var name = registry.Name{Namespace: "default", Name: "pg"}

// service is one that has the primary asked, or not.
func service(name registry.Name, ask bool) registry.Change[registry.Service] {
	s := &registry.Service{Name: name}
	s.SetTerms(registry.Terms{HolderKey: "/service/pg/", Patroni: patroni.Terms{Scope: "pg", Ask: ask}})
	return registry.Change[registry.Service]{Name: name, Value: s}
}

func at(name registry.Name, addr string) registry.Change[registry.Endpoints] {
	a, err := registry.ParseAddr(addr)
	if err != nil {
		panic(err)
	}
	return registry.Change[registry.Endpoints]{Name: name, Value: &registry.Endpoints{Name: name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(a)}}}}
}

// A scene is a Source with what it has sent. Its questions get the error in reply.
type scene struct {
	*etcd
	source *Source
	mu     sync.Mutex
	reply  error
	role   string
	hangs  bool
	late   time.Duration // after its time is over, the error of a question that hangs is in
	asked  []string
	state  map[registry.Name]string
}

func (s *scene) set(reply error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

func start(t *testing.T) *scene {
	s := &scene{etcd: &etcd{holder: "m1", say: make(chan registry.Update)}, state: make(map[registry.Name]string)}
	source, err := New(s.etcd, etcdconfig.TLSFiles{})
	if err != nil {
		t.Fatal(err)
	}
	s.source = source
	source.get = func(ctx context.Context, url string, into *state) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.hangs {
			s.asked = append(s.asked, url)
			s.mu.Unlock()
			<-ctx.Done()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				time.Sleep(s.late)
			}
			s.mu.Lock()
			return ctx.Err()
		}
		if s.asked = append(s.asked, url); into != nil {
			into.Role = s.role
		}
		return s.reply
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, over := make(chan registry.Update), make(chan struct{})
	go func() {
		defer close(over)
		if err := source.Run(ctx, out); err != nil {
			t.Error(err)
		}
	}()
	go func() {
		for {
			select {
			case u := <-out:
				s.mu.Lock()
				for _, c := range u.Endpoints {
					text := ""
					for a := range c.Value.Of("").All() {
						text += a.String()
					}
					s.state[c.Name] = text
				}
				s.mu.Unlock()
			case <-over:
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-over })
	return s
}

// look lets time pass, and returns what is in force then, and which questions were asked since the last look.
func (s *scene) look(d time.Duration) (inForce string, asked []string) {
	time.Sleep(d)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, s.asked = s.asked, nil
	return s.state[name], asked
}

// after lets time pass, and says what is in force then and how many questions were asked meanwhile.
func (s *scene) after(t *testing.T, d time.Duration, want string, questions int) {
	t.Helper()
	if is, asked := s.look(d); is != want || len(asked) != questions {
		t.Errorf("in force %q, %d questions; want %q, %d", is, len(asked), want, questions)
	}
	if e := s.source.Status().Elections[0]; e.Unconfirmed != (want == "") || e.HasHolder() == e.Unconfirmed {
		t.Errorf("in force is %q, and the status says that the holder is not confirmed: %v", want, e.Unconfirmed)
	}
	if s.etcd.Status().Elections[0].Unconfirmed {
		t.Error("the status of the source beneath has changed")
	}
}

func TestAPrimaryThatDeniesItIsInForceNoMoreWhileEtcdIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		other := registry.Name{Namespace: "default", Name: "keeps"}
		s.say <- registry.Update{Set: true, Revision: 7, Services: []registry.Change[registry.Service]{service(name, true), service(other, false)},
			Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1"), at(other, "10.0.0.1:1")}}
		s.answers()
		s.after(t, 4900*time.Millisecond, "10.0.0.1:1", 0) // the ttl
		s.after(t, 10*time.Second, "10.0.0.1:1", 10)       // it says 200 each time
		s.set(errors.New("status 503"))
		s.after(t, 2*time.Second, "10.0.0.1:1", 2)
		s.set(nil)
		s.after(t, time.Second, "10.0.0.1:1", 1)
		s.set(errors.New("status 503"))
		s.after(t, 2*time.Second, "10.0.0.1:1", 2)
		s.after(t, time.Second, "", 1)
		if s.state[other] != "10.0.0.1:1" {
			t.Error("a service that does not ask lost its primary")
		}
		s.after(t, 10*time.Second, "", 10)
		s.set(nil)
		s.after(t, time.Second, "10.0.0.1:1", 1) // demoted, and promoted again

		s.set(errors.New("no route"))
		s.after(t, 3*time.Second, "", 3)
		s.answers() // and nothing has changed
		s.after(t, time.Second, "10.0.0.1:1", 0)

		s.after(t, 7500*time.Millisecond, "", 4)
		s.say <- registry.Update{Revision: 8} // of something else
		s.answers()
		s.after(t, 0, "10.0.0.1:1", 0)
		s.after(t, 8500*time.Millisecond, "", 4)
		s.say <- registry.Update{Revision: 9, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.2:1")}}
		s.answers()
		s.after(t, 0, "10.0.0.2:1", 0)
	})
}

// TestASilentPrimaryHasNoClientThreeSecondsAfterTheTTL, whenever within a second etcd has answered last. Three questions have had their time by then.
func TestASilentPrimaryHasNoClientThreeSecondsAfterTheTTL(t *testing.T) {
	for _, phase := range []time.Duration{0, time.Nanosecond, 300 * time.Millisecond, 999 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t)
			s.hangs = true
			s.say <- registry.Update{Set: true, Services: []registry.Change[registry.Service]{service(name, true)}, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1")}}
			time.Sleep(phase)
			s.answers()
			s.after(t, 5*time.Second-time.Nanosecond, "10.0.0.1:1", 0) // the ttl
			s.after(t, 2*time.Second+limit, "10.0.0.1:1", 3)
			s.after(t, time.Second-limit, "", 0)
		})
	}
}

// TestAnAnswerThatComesLateDelaysTheNextQuestionByNoPeriod: a node may be too busy to end a question in time.
func TestAnAnswerThatComesLateDelaysTheNextQuestionByNoPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.hangs, s.late = true, period-limit+soon/2
		s.say <- registry.Update{Set: true, Services: []registry.Change[registry.Service]{service(name, true)}, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1")}}
		s.answers()
		s.after(t, 5*time.Second+3*period+2*soon, "10.0.0.1:1", 3)
		s.after(t, soon, "", 1)
	})
}

// TestEachPrimaryIsAskedHoweverManyAreShown: one that is not shown has services, too.
func TestEachPrimaryIsAskedHoweverManyAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.others = make([]config.Election, config.MaxRejections)
		s.set(errors.New("status 503"))
		s.say <- registry.Update{Set: true, Services: []registry.Change[registry.Service]{service(name, true)}, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1")}}
		s.answers()
		time.Sleep(7500 * time.Millisecond) // the ttl, and three answers
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.state[name] != "" || len(s.asked) != 3 {
			t.Errorf("in force %q after %d questions; want nothing after 3", s.state[name], len(s.asked))
		}
		if n := len(s.source.Status().Elections); n != config.MaxRejections {
			t.Errorf("operators are shown %d elections; want %d at most", n, config.MaxRejections)
		}
	})
}

// TestAKeyThatAServiceFollowsByItselfDelaysNoQuestion: a service may name the leader's key with kube-proxy/holder-key. Then the key is among the elections
// twice, the second time with nothing that is known of the cluster.
func TestAKeyThatAServiceFollowsByItselfDelaysNoQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.behind = []config.Election{{Key: key, Holder: "m1"}}
		s.set(errors.New("status 503"))
		s.say <- registry.Update{Set: true, Services: []registry.Change[registry.Service]{service(name, true)}, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1")}}
		s.answers()
		s.after(t, 7500*time.Millisecond, "", 3) // the ttl, and three answers
	})
}

func TestNobodyIsAskedWithoutAServiceThatWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.set(errors.New("status 503"))
		s.say <- registry.Update{Set: true, Services: []registry.Change[registry.Service]{service(name, false)}, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1")}}
		s.after(t, time.Minute, "10.0.0.1:1", 0)
		s.say <- registry.Update{Services: []registry.Change[registry.Service]{service(name, true)}}
		s.after(t, 4500*time.Millisecond, "", 4)
		s.say <- registry.Update{Services: []registry.Change[registry.Service]{service(name, false)}} // restored, for etcd has spoken
		s.after(t, time.Minute, "10.0.0.1:1", 0)
	})
}

func TestOnly200CountsAndCertificatesAreVerified(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/primary":
		case "/redirect":
			http.Redirect(w, r, "/primary", http.StatusFound)
		default:
			http.Error(w, "no", http.StatusServiceUnavailable)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cas []string
		url string
		err string
	}{
		{nil, plain.URL + "/primary", ""},
		{nil, plain.URL + "/replica", "status 503"},
		{nil, plain.URL + "/redirect", "status 302"},
		{nil, secure.URL + "/primary", "certificate"},
		{[]string{ca}, secure.URL + "/primary", ""},
		{nil, "http://\x00", "its api_url cannot be asked"},
	} {
		source, err := New(nil, etcdconfig.TLSFiles{CA: c.cas})
		if err != nil {
			t.Fatal(err)
		}
		err = source.get(t.Context(), c.url, nil)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v; want %q", c.url, err, c.err)
		}
	}
}

// Each question is a connection of its own, so a CA that was rotated has no primary taken for dead.
func TestAReplacedAuthorityIsUsedWithTheNextQuestion(t *testing.T) {
	one, other := etcdtest.NewCA(t), etcdtest.NewCA(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var serving atomic.Pointer[tls.Certificate]
	issue := func(ca *etcdtest.CA) {
		pair, err := tls.LoadX509KeyPair(ca.Issue(t, "patroni"))
		if err != nil {
			t.Fatal(err)
		}
		serving.Store(&pair)
	}
	issue(one)
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*serving.Load()}}, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	source, err := New(nil, etcdconfig.TLSFiles{CA: []string{one.File}})
	if err != nil {
		t.Fatal(err)
	}
	if err := source.get(t.Context(), server.URL, nil); err != nil {
		t.Fatalf("with the first authority: %v", err)
	}
	issue(other)
	if err := source.get(t.Context(), server.URL, nil); err == nil {
		t.Error("the authority that is not in the file yet is believed")
	}
	successor, err := os.ReadFile(other.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(one.File, successor, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := source.get(t.Context(), server.URL, nil); err != nil {
		t.Errorf("with the successor of the authority: %v", err)
	}
	if err := os.WriteFile(one.File, successor[:len(successor)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := source.get(t.Context(), server.URL, nil); err != nil {
		t.Errorf("while the file is being written again: %v", err)
	}
}

func TestAFileThatCannotBeUsedIsAnErrorAtTheStart(t *testing.T) {
	if _, err := New(nil, etcdconfig.TLSFiles{CA: []string{"/nowhere"}}); err == nil || !strings.Contains(err.Error(), "TLS towards Patroni") {
		t.Errorf("error %v", err)
	}
}
