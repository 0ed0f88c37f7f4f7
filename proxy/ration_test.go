package proxy

import (
	"fmt"
	"testing"
	"time"

	"kubeproxy/registry"
)

func TestARationLetsAFewLinesPassAndCountsTheOthers(t *testing.T) {
	var r ration
	pass := func(at time.Duration, lines int) (passed int, notes string) {
		for range lines {
			if note, ok := r.at(at); ok {
				passed++
				notes += note
			}
		}
		return passed, notes
	}
	for _, c := range []struct {
		at     time.Duration
		lines  int
		passed int
		notes  string
	}{
		{time.Second, 19, 19, ""},
		{11 * time.Second, 234, 1, " (more lines of this kind are held back for 50s)"},
		{60 * time.Second, 1, 0, ""},
		{61 * time.Second, 2, 2, " (234 lines of this kind were held back)"},
		{200 * time.Second, 20, 20, " (more lines of this kind are held back for 1m0s)"},
	} {
		if passed, notes := pass(c.at, c.lines); passed != c.passed || notes != c.notes {
			t.Errorf("at %v, of %d lines %d passed, with %q; want %d, with %q", c.at, c.lines, passed, notes, c.passed, c.notes)
		}
	}
}

// An outage of many endpoints, and its end, take a bounded number of lines.
func TestAThousandEndpointsThatDoNotAnswerDoNotFloodTheLog(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	batch := registry.Batch{Endpoints: make(map[registry.Name]*registry.Endpoints)}
	for i := range 1000 {
		name := registry.Name{Namespace: "default", Name: fmt.Sprint("s", i)}
		batch.Endpoints[name] = &registry.Endpoints{Name: name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addr(1))}}}
	}
	lb.OnUpdate(batch)
	for _, byPort := range lb.services {
		for _, r := range byPort {
			for _, e := range r.awake().endpoints {
				e.failed(registry.TCP)
				e.answered(registry.TCP)
			}
		}
	}
	if lb.outages.withheld != 2*1000-rationSize {
		t.Errorf("of 2000 lines %d were held back; want all but %d", lb.outages.withheld, rationSize)
	}
}
