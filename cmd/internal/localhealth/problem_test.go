package localhealth

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kubeproxy/registry"
)

// expectProblems waits until all is settled.
func expectProblems(t *testing.T, when string, s *Server, m *memory, want ...Problem) {
	t.Helper()
	m.open()
	if diff := cmp.Diff(want, s.Problems(), cmpopts.EquateErrors(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s, the problems are other ones; want (-), got (+):\n%s", when, diff)
	}
}

func TestAServiceWhosePortAnotherHasIsListedAndLoggedOnce(t *testing.T) {
	lines := logged(t)
	inMemory(t, func(t *testing.T, s *Server, m *memory) {
		a, b, c := registry.Name{Name: "a"}, registry.Name{Name: "b"}, registry.Name{Name: "c"}
		s.OnUpdate(registry.Batch{Services: map[registry.Name]*registry.Service{a: asking(5000), b: asking(5000)}})
		expectProblems(t, "at first", s, m, Problem{Service: b, Port: 5000, Owner: a})
		time.Sleep(time.Hour)
		s.OnUpdate(registry.Batch{Services: map[registry.Name]*registry.Service{c: asking(5001)}})
		expectProblems(t, "after another change", s, m, Problem{Service: b, Port: 5000, Owner: a})
		s.OnUpdate(registry.Batch{Services: map[registry.Name]*registry.Service{a: nil}})
		expectProblems(t, "without the owner", s, m)
	})
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "b and /a have one healthCheckNodePort, 5000") {
		t.Errorf("the log says %q; want one line about b and a", got)
	}
}

func TestAPortThatCannotBeOpenedIsListedWhileThatLasts(t *testing.T) {
	logged(t)
	inMemory(t, func(t *testing.T, s *Server, m *memory) {
		var taken atomic.Bool
		m.refuse = func() error {
			if taken.Load() {
				return syscall.EADDRINUSE
			}
			return nil
		}
		taken.Store(true)
		s.learn(asking(5000))
		expectProblems(t, "while a predecessor may have it", s, m)
		time.Sleep(quickFor)
		expectProblems(t, "when another program has it", s, m, Problem{Service: web, Port: 5000, Err: syscall.EADDRINUSE})
		taken.Store(false)
		time.Sleep(retry)
		expectProblems(t, "when it is open", s, m)
		taken.Store(true)
		s.learn(asking(5001))
		time.Sleep(quickFor)
		expectProblems(t, "when another program has another port", s, m, Problem{Service: web, Port: 5001, Err: syscall.EADDRINUSE})
		s.learn(asking(0))
		expectProblems(t, "when none is wanted", s, m)
	})
}

func TestServicesBeyondTheLowestPortsAreListed(t *testing.T) {
	logged(t)
	inMemory(t, func(t *testing.T, s *Server, m *memory) {
		s.OnUpdate(numbered(5001, 5000+MaxPorts, asking))
		expectProblems(t, "with as many as are opened", s, m)
		s.OnUpdate(numbered(6001, 6001, asking))
		expectProblems(t, "with one more", s, m, Problem{Service: registry.Name{Namespace: "default", Name: "s6001"}, Port: 6001})
	})
}
