package statuspage

import (
	"strings"
	"syscall"
	"testing"

	"kubeproxy/cmd/internal/localhealth"
)

// TestAHealthPortThatIsNotOpenIsAProblem: worse than that of one node is what all nodes have.
func TestAHealthPortThatIsNotOpenIsAProblem(t *testing.T) {
	s := newSite(4)
	s.healthPorts = []localhealth.Problem{
		{Service: numbered(0), Port: 32000, Err: syscall.EADDRINUSE},
		{Service: numbered(1), Port: 32001, Owner: numbered(3)},
		{Service: numbered(2), Port: 32002},
	}
	want := []string{
		"Load balancers of default/service-00001 are told about default/service-00003 at healthCheckNodePort 32001",
		"healthCheckNodePort 32002 of default/service-00002 is not open, so load balancers send it no clients: ",
		"healthCheckNodePort 32000 of default/service-00000 is not open, so load balancers send its clients to other nodes: address already in use. Free the port",
	}
	r := s.page(t).Report()
	if len(r.Problems) != len(want) {
		t.Fatalf("the problems are %q; want %q", r.Problems, want)
	}
	for i := range want {
		if !strings.HasPrefix(r.Problems[i], want[i]) {
			t.Errorf("problem %d is %q; want %q", i, r.Problems[i], want[i])
		}
	}
	if r, ok := s.page(t).ReportOf(numbered(1)); !ok || r.OK || len(r.Problems) != 1 {
		t.Errorf("the problems of one service are %q", r.Problems)
	}
}
