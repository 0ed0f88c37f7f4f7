package statuspage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kubeproxy/config"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

func numbered(i int) registry.Name {
	return registry.Name{Namespace: "default", Name: fmt.Sprintf("service-%05d", i)}
}

// TestAnOutageIsNamedAmongManyWarningsOfItsKind: what is left out is never worse than what is listed.
func TestAnOutageIsNamedAmongManyWarningsOfItsKind(t *testing.T) {
	s := newSite(9)
	for i := range 8 {
		s.drain(numbered(i))
	}
	s.fail(numbered(8), 0)
	s.fail(numbered(8), 1)
	if r := s.page(t).Report(); !strings.HasPrefix(r.Verdict, "No endpoint of default/service-00008 answers") || len(r.Problems) != maxProblems {
		t.Errorf("the problems are %q; want the outage first, and %d of them", r.Problems, maxProblems)
	}
}

// TestAServiceWithAFaultIsNotWell, however many others have the same.
func TestAServiceWithAFaultIsNotWell(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*site)
	}{
		{"its port is not open", func(s *site) {
			for i := range s.ports {
				s.ports[i].Err = errors.New("another program has it")
			}
		}},
		{"it has no endpoints", func(s *site) { s.endpoints[s.ports[8].Owner], s.endpoints[s.ports[9].Owner] = nil, nil }},
		{"it waits for a port", func(s *site) {
			s.ports[0].Waiting = []registry.PortKey{s.ports[8].Owner, s.ports[9].Owner}
			s.ports = s.ports[:9]
		}},
		{"it asks for a port that is refused", func(s *site) {
			s.ports[8].Refused, s.ports[8].Err, s.ports[8].Waiting = true, errors.New("port 80 is reserved"), []registry.PortKey{s.ports[8].Owner, s.ports[9].Owner}
			s.ports = s.ports[:9]
		}},
	} {
		s := newSite(10)
		c.fault(s)
		r, ok := s.page(t).ReportOf(numbered(9))
		if !ok || r.OK || len(r.Problems) != 1 {
			t.Errorf("%s: its problems are %q", c.name, r.Problems)
		}
		if page := get(t, s.page(t), serviceHref(numbered(9))).Body.String(); strings.Contains(page, "is well.") {
			t.Errorf("%s: its page says that it is well", c.name)
		}
	}
}

// TestAConditionWithoutAnExampleIsNamed: an endpoint may recover while a snapshot is taken.
func TestAConditionWithoutAnExampleIsNamed(t *testing.T) {
	for _, condition := range []health.Condition{health.NoAnswer, health.ChecksFail, health.AllFailed} {
		s := &snapshot{at: time.Now(), ports: []port{{label: "default/web", rotation: rotation.Status{Condition: condition, Endpoints: 2}}}}
		if all := s.conditions(); len(all) != 1 || !strings.Contains(all[0].Text, "default/web") {
			t.Errorf("%v: %v", condition, all)
		}
	}
	s := &snapshot{at: time.Now(), ports: []port{{label: "default/web", rotation: rotation.Status{Condition: health.Served, Endpoints: 2, Failing: 1}}}}
	if all := s.silentEndpoints(); len(all) > 0 {
		t.Errorf("an endpoint that is not known is named: %v", all)
	}
}

// TestAServiceWhoseMembersAreAllLeftOutIsSentToElections: what elects the endpoints writes them, so an operator must not.
func TestAServiceWhoseMembersAreAllLeftOutIsSentToElections(t *testing.T) {
	s := newSite(2)
	key := s.ports[0].Owner
	s.endpoints[key] = nil
	s.elect(config.Election{Key: "/service/pg/leader", Holder: "m1", Elects: []registry.Name{key.Name}})
	s.services[key.Name].SetTerms(registry.Terms{HolderKey: "/service/pg/"})
	for came, want := range []string{"the next client of tcp port 1000 will be turned away", "clients of tcp port 1000 were turned away"} {
		s.totals[0].Ended[traffic.NoEndpoints] = uint64(came)
		r := s.page(t).Report()
		if want := "Key /service/pg/leader gives default/service-00000 no endpoints, and " + want + ": see at Elections"; len(r.Problems) != 1 || !strings.HasPrefix(r.Verdict, want) {
			t.Errorf("the problems are %q; want %q", r.Problems, want)
		}
	}
}

// TestAnUnheldKeyIsNamedForAllItsServices, though an election names but the first of them.
func TestAnUnheldKeyIsNamedForAllItsServices(t *testing.T) {
	s := newSite(config.MaxElected + 1)
	e := config.Election{Key: "/lock"}
	for _, row := range s.ports {
		s.endpoints[row.Owner] = nil
		s.services[row.Owner.Name].SetTerms(registry.Terms{HolderKey: "/lock"})
		if len(e.Elects) < config.MaxElected {
			e.Elects = append(e.Elects, row.Owner.Name)
		}
	}
	s.elect(e)
	r, _ := s.page(t).ReportOf(numbered(config.MaxElected))
	if len(r.Problems) != 1 || !strings.HasPrefix(r.Verdict, "Nobody holds key /lock") || !strings.Contains(r.Verdict, ", 1 more are refused") {
		t.Errorf("the problems of the last service are %q", r.Problems)
	}
	if r := s.page(t).Report(); len(r.Problems) != 1 {
		t.Errorf("the problems are %q", r.Problems)
	}
}

// TestEndpointsThatAnOperatorTookOutAreGivenBackByEnable: a weight in the record would change nothing.
func TestEndpointsThatAnOperatorTookOutAreGivenBackByEnable(t *testing.T) {
	s := newSite(1)
	s.drain(numbered(0))
	s.overrides = []balance.Override{{Service: numbered(0), Addr: addr(1), Word: balance.Drain}}
	if r := s.page(t).Report(); !strings.Contains(r.Verdict, "kube-proxy enable default/service-00000 10.1.0.1:80 ends that") {
		t.Errorf("the page says %q", r.Verdict)
	}
}

// TestASourceThatIsAwayFailsNoClientsOfASavedState: the first sentence is for who does.
func TestASourceThatIsAwayFailsNoClientsOfASavedState(t *testing.T) {
	s := newSite(1)
	s.stale = true
	st := &s.sources[0].(*fakeSource).status
	st.Connected, st.Ready = false, false
	s.fail(numbered(0), 0)
	s.fail(numbered(0), 1)
	if r := s.page(t).Report(); !strings.HasPrefix(r.Verdict, "No endpoint of default/service-00000 answers") {
		t.Errorf("the first sentence is %q", r.Verdict)
	}
}
