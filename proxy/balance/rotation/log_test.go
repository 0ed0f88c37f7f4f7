package rotation

import (
	"fmt"
	"testing"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// An outage of many endpoints, and its end, take a bounded number of lines.
func TestAThousandEndpointsThatDoNotAnswerDoNotFloodTheLog(t *testing.T) {
	rules := NewRules(false)
	lines := func() int64 { return glog.Stats.Info.Lines() + glog.Stats.Warning.Lines() }
	before := lines()
	for i := range 1000 {
		r := New(rules, registry.PortKey{Name: registry.Name{Namespace: "default", Name: fmt.Sprint("s", i)}})
		setEndpoints(r, 1)
		e := r.Endpoints()[0]
		e.Failed(registry.TCP)
		e.Answered(registry.TCP)
	}
	if n := lines() - before; n != 20 {
		t.Errorf("of 2000 lines %d were logged; want 20", n)
	}
}
