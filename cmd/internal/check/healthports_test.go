package check

import (
	"fmt"
	"strings"
	"testing"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// TestHealthPortsThatCollideAreNamed: of two services, and of a service and a TCP port that the node listens on.
func TestHealthPortsThatCollideAreNamed(t *testing.T) {
	local := func(port, health int) string {
		return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","spec":{"ports":[{"port":80,"nodePort":%d}],"externalTrafficPolicy":"Local","healthCheckNodePort":%d}}`, port, health)
	}
	const udp = `{"kind":"Service","apiVersion":"v1","spec":{"ports":[{"port":53,"nodePort":32000,"protocol":"UDP"}]}}`
	r := Examine(stored("specs/a", local(8000, 32000), "specs/b", local(8001, 32000), "specs/c", local(8002, 8000), "specs/d", local(8003, 9999),
		"specs/e", local(8004, 32001), "specs/f", udp), Options{Operators: []uint16{9999}, Decoder: decode.Decoder{NodePorts: true, Node: registry.Node{Name: "n1"}}})
	var found []string
	for _, v := range r.Records {
		for _, f := range v.Findings {
			if f.Code == HealthPortConflict {
				found = append(found, strings.TrimPrefix(v.Key, registry.Prefix)+": "+f.Level+": "+f.Text)
			}
		}
	}
	want := []string{
		"specs/b: warning: its healthCheckNodePort 32000 is that of a, which comes first by name: its load balancers are told about that one",
		"specs/c: warning: its healthCheckNodePort 8000 is also a port of a: a node opens only one of the two",
		"specs/d: warning: its healthCheckNodePort 9999 is one of the operators' ports: a node does not open it",
	}
	if got, want := strings.Join(found, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
}
