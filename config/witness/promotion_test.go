package witness

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config/etcdconfig"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

// awaits is a service that awaits the promotion of its primary.
func awaits(name registry.Name) registry.Change[registry.Service] {
	return wants(name, patroni.Terms{Unpromoted: true})
}

func wants(name registry.Name, of patroni.Terms) registry.Change[registry.Service] {
	s := &registry.Service{Name: name}
	of.Scope = "pg"
	s.SetTerms(registry.Terms{HolderKey: "/service/pg/", Patroni: of})
	return registry.Change[registry.Service]{Name: name, Value: s}
}

func none(name registry.Name) registry.Change[registry.Endpoints] {
	return registry.Change[registry.Endpoints]{Name: name, Value: &registry.Endpoints{Name: name}}
}

// says has etcd say something, at a revision of its own.
func (s *scene) says(u registry.Update) {
	s.etcd.mu.Lock()
	s.revision++
	u.Revision = s.revision
	s.etcd.mu.Unlock()
	s.say <- u
}

// is sets what the REST API answers.
func (s *scene) is(role string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role, s.reply = role, err
}

// has says what is in force of a service.
func (s *scene) has(name registry.Name) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state[name]
}

// hang has the REST API answer nothing, or answer again.
func (s *scene) hang(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = is
}

// soon lets time pass, and says what is in force then and whether there were questions meanwhile.
func (s *scene) soon(t *testing.T, d time.Duration, want string, questions bool) {
	t.Helper()
	is, asked := s.look(d)
	if is != want || len(asked) > 0 != questions {
		t.Errorf("in force %q, %d questions; want %q, and questions: %v", is, len(asked), want, questions)
	}
	if slices.ContainsFunc(asked, func(url string) bool { return url != "http://10.0.0.1:8008/patroni" }) {
		t.Errorf("asked for %v", asked)
	}
}

func TestANewPrimaryIsInForceOnceItSaysThatItIsPromoted(t *testing.T) {
	other, late := registry.Name{Namespace: "default", Name: "serves"}, registry.Name{Namespace: "default", Name: "late"}
	of := func(u ...registry.Change[registry.Endpoints]) registry.Update { return registry.Update{Endpoints: u} }
	for _, role := range []string{"master", "primary"} { // of Patroni 3, and of 4
		synctest.Test(t, func(t *testing.T) {
			s := start(t)
			set := registry.Update{Set: true, Services: []registry.Change[registry.Service]{awaits(name), service(other, false)},
				Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1"), at(other, "10.0.0.1:1")}}
			s.is("replica", nil)
			s.says(set)
			s.soon(t, time.Minute, "10.0.0.1:1", false) // it may have been the primary for long

			s.says(of(none(name), none(other)))
			s.says(of(at(name, "10.0.0.2:1"), at(other, "10.0.0.2:1")))
			s.soon(t, 300*time.Millisecond, "", true)
			if s.has(other) != "10.0.0.2:1" {
				t.Error("a service that awaits no promotion has no primary")
			}
			set.Endpoints = []registry.Change[registry.Endpoints]{at(name, "10.0.0.2:1"), at(other, "10.0.0.2:1"), at(late, "10.0.0.2:1")}
			set.Services = append(set.Services, awaits(late))
			s.says(set) // a resync in the middle
			s.soon(t, 300*time.Millisecond, "", true)
			if s.has(late) != "10.0.0.2:1" {
				t.Error("a service that came in the middle has no primary")
			}
			s.is(role, nil)
			s.soon(t, 2*pace, "10.0.0.2:1", true)
			s.soon(t, time.Minute, "10.0.0.2:1", false)

			// Without a deletion between, and one after another.
			s.is("replica", nil)
			s.says(of(at(name, "10.0.0.1:1")))
			s.soon(t, 4*time.Second, "", true)
			s.says(of(at(name, "10.0.0.3:1")))
			s.soon(t, 4*time.Second, "", true)
			s.soon(t, time.Second, "10.0.0.3:1", true) // for no longer than that
			s.soon(t, time.Minute, "10.0.0.3:1", false)

			// It goes while it is awaited.
			s.says(of(at(name, "10.0.0.1:1")))
			s.says(of(none(name)))
			s.look(0)
			s.soon(t, time.Minute, "", false)

			// A REST API that cannot be asked is no reason to wait.
			s.is("", errors.New("connection refused"))
			s.says(of(at(name, "10.0.0.1:1")))
			s.soon(t, 0, "10.0.0.1:1", true)
			s.is("", nil)
			s.says(of(at(name, "10.0.0.3:1")))
			s.soon(t, 0, "10.0.0.3:1", true)
			s.hang(true)
			s.says(of(at(name, "10.0.0.1:1")))
			s.soon(t, period, "", true)
			s.soon(t, period+2*pace, "10.0.0.1:1", true)
			s.hang(false)

			// The service asks no more.
			s.is("replica", nil)
			s.says(of(at(name, "10.0.0.2:1")))
			s.soon(t, time.Second, "", true)
			s.says(registry.Update{Services: []registry.Change[registry.Service]{service(name, false)}})
			s.soon(t, 0, "10.0.0.2:1", false)
		})
	}
}

// TestTheStatusMayComeAfterTheUpdate: until it does, it may name the REST API of the primary before.
func TestTheStatusMayComeAfterTheUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.is("master", nil)
		s.says(registry.Update{Set: true, Services: []registry.Change[registry.Service]{awaits(name)}, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1")}})
		s.say <- registry.Update{Revision: 2, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.2:1")}}
		s.soon(t, time.Second, "", false)
		s.etcd.mu.Lock()
		s.revision = 2
		s.etcd.mu.Unlock()
		s.soon(t, 2*slow, "10.0.0.2:1", true)
	})
}

// TestTheServicesOfAPrimaryAwaitItTogetherAndNoOtherLosesItsOwn: a service that has the primary already is not cut because another one gets it.
func TestTheServicesOfAPrimaryAwaitItTogetherAndNoOtherLosesItsOwn(t *testing.T) {
	other := registry.Name{Namespace: "default", Name: "other"}
	for range 10 { // for a SET has its services in any order
		synctest.Test(t, func(t *testing.T) {
			s := start(t)
			s.is("replica", nil)
			both := []registry.Change[registry.Service]{awaits(name), awaits(other)}
			s.says(registry.Update{Set: true, Services: both, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1"), at(other, "10.0.0.1:1")}})
			s.says(registry.Update{Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.2:1"), at(other, "10.0.0.2:1")}})
			s.soon(t, 10*time.Millisecond, "", true)
			if s.has(other) != "" {
				t.Error("the other service does not wait")
			}
			s.look(time.Second)
			if _, asked := s.look(2 * time.Second); len(asked) < 5 || len(asked) > 17 { // four a second
				t.Errorf("%d questions in two seconds, for two services of one primary", len(asked))
			}
			s.is("primary", nil)
			s.soon(t, 2*slow, "10.0.0.2:1", true)
			if s.has(other) != "10.0.0.2:1" {
				t.Error("the other service has no primary")
			}

			// One that comes later makes it last no longer.
			s.is("replica", nil)
			s.says(registry.Update{Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1")}})
			s.soon(t, 3*time.Second, "", true)
			s.says(registry.Update{Endpoints: []registry.Change[registry.Endpoints]{at(other, "10.0.0.1:1")}})
			s.soon(t, 2*time.Second, "10.0.0.1:1", true)
			if s.has(other) != "10.0.0.1:1" {
				t.Error("the service that came later waits for longer")
			}
			s.says(registry.Update{Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.2:1"), at(other, "10.0.0.2:1")}})
			s.is("primary", nil)
			s.soon(t, 2*pace, "10.0.0.2:1", true)

			// The other one had replicas until now, or another primary, and no key has changed.
			s.is("replica", nil)
			s.says(registry.Update{Services: []registry.Change[registry.Service]{wants(other, patroni.Terms{Replicas: true})}, Endpoints: []registry.Change[registry.Endpoints]{at(other, "10.0.0.3:1")}})
			s.says(registry.Update{Set: true, Services: both, Endpoints: []registry.Change[registry.Endpoints]{at(other, "10.0.0.2:1"), at(name, "10.0.0.2:1")}})
			s.soon(t, 10*time.Millisecond, "10.0.0.2:1", false)
			if s.has(other) != "10.0.0.2:1" {
				t.Error("the other service awaits a primary that no key has named just now")
			}
		})
	}
}

func TestAPrimaryThatIsAwaitedMayAlsoBeDoubtedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.is("replica", nil)
		s.says(registry.Update{Set: true, Services: []registry.Change[registry.Service]{wants(name, patroni.Terms{Ask: true, Unpromoted: true})}, Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.1:1")}})
		s.says(registry.Update{Endpoints: []registry.Change[registry.Endpoints]{at(name, "10.0.0.2:1")}})
		s.answers()
		s.soon(t, time.Second, "", true)
		s.is("primary", nil)
		s.soon(t, 2*slow, "10.0.0.2:1", true)
		s.set(errors.New("status 503"))
		if is, _ := s.look(9 * time.Second); is != "" { // the ttl, and three answers
			t.Errorf("%s is in force, which denies that it is the primary", is)
		}
		s.set(nil)
		if is, _ := s.look(time.Second); is != "10.0.0.2:1" {
			t.Error("no primary is in force, though it says that it is one")
		}
	})
}

func TestTheRoleIsReadFromTheAnswer(t *testing.T) {
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) }))
	t.Cleanup(server.Close)
	source, err := New(nil, etcdconfig.TLSFiles{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ body, role, err string }{
		{`{"state":"running","role":"replica","xlog":{"received_location":1}}`, "replica", ""},
		{`{"role":"master"}`, "master", ""},
		{`{"role":7}`, "", "no JSON object"},
		{`<html>`, "", "no JSON object"},
		{``, "", "no JSON object"},
		{`{"role":"` + strings.Repeat("x", patroni.MaxValue) + `"}`, "", "no JSON object"},
	} {
		body = c.body
		var is state
		err := source.get(t.Context(), server.URL+"/patroni", &is)
		if is.Role != c.role || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%.40s: %q, %v; want %q, %q", c.body, is.Role, err, c.role, c.err)
		}
	}
}
