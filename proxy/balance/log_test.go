package balance

import (
	"fmt"
	"testing"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// An outage of many endpoints, and its end, take a bounded number of lines.
func TestAThousandEndpointsThatDoNotAnswerDoNotFloodTheLog(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	records := make(map[registry.Name]*registry.Endpoints)
	for i := range 1000 {
		name := registry.Name{Namespace: "default", Name: fmt.Sprint("s", i)}
		records[name] = &registry.Endpoints{Name: name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addr(1))}}}
	}
	lb.SetEndpoints(records)
	lines := func() int64 { return glog.Stats.Info.Lines() + glog.Stats.Warning.Lines() }
	before := lines()
	for _, byPort := range lb.services {
		for _, r := range byPort {
			for _, e := range r.awake().endpoints {
				e.Failed(registry.TCP)
				e.Answered(registry.TCP)
			}
		}
	}
	if n := lines() - before; n != 20 {
		t.Errorf("of 2000 lines %d were logged; want 20", n)
	}
}
