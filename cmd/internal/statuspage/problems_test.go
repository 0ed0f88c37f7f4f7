package statuspage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
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
