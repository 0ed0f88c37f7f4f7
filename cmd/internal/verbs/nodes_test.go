package verbs

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/cmd/internal/control"
)

// aNode answers as a node does, each time with the next of some answers, and with the last one from then on.
func aNode(t *testing.T, answers ...string) (address string) {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != control.EndpointPath || r.URL.Query().Get("endpoint") != "10.1.2.3:80" {
			t.Errorf("asked for %s", r.URL)
		}
		answer := answers[min(int(n.Add(1)), len(answers))-1]
		if strings.Contains(answer, `"error"`) {
			w.WriteHeader(http.StatusConflict)
		}
		fmt.Fprint(w, strings.Replace(answer, `{"revision"`, `{"endpoint":"10.1.2.3:80","revision"`, 1))
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func told(t *testing.T, found NodesWaited) string {
	t.Helper()
	var text strings.Builder
	printNodes(&text, found, time.Minute)
	return text.String()
}

func TestNodesAreWaitedForUntilEachHasLetGoTwice(t *testing.T) {
	quick := `{"node":"a","endpoint":"10.1.2.3:80","revision":57}`
	slow := aNode(t, `{"revision":56}`, `{"revision":57,"pending":true}`, `{"revision":57,"clients":2}`, `{"revision":58}`, `{"revision":58,"clients":1}`, `{"revision":58}`)
	found := askNodes(t.Context(), []string{aNode(t, quick), slow}, "10.1.2.3:80", 57)
	if found.Left != 0 || found.Nodes[1].Revision != 58 {
		t.Errorf("found %+v", found)
	}
	if got, want := told(t, found), "10.1.2.3:80 has no client on any of 2 nodes, and revision 57 is in force\n"; got != want {
		t.Errorf("it says %q; want %q", got, want)
	}
}

func TestNodesThatHaveNotLetGoAreNamed(t *testing.T) {
	addresses := []string{
		aNode(t, `{"revision":57}`), aNode(t, `{"revision":55,"clients":1}`), aNode(t, `{"revision":57,"clients":3}`), aNode(t, `{"revision":57,"pending":true}`),
		aNode(t, `{"error":"it carries clients in the kernel"}`), aNode(t, `<html>`), aNode(t, `{"status":"ok"}`), "127.0.0.1:1",
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one round
	got := told(t, askNodes(ctx, addresses, "10.1.2.3:80", 57))
	lines := strings.Split(got, "\n")
	if lines[0] != "7 nodes of 8 still have 10.1.2.3:80 after 1m0s:" {
		t.Errorf("it begins with %q", lines[0])
	}
	for i, want := range []string{"revision 55; 1 client", "3 clients", "revision 57 is not in force yet; 0 clients", "cannot be asked: it carries clients in the kernel", "cannot be asked: invalid character", "cannot be asked: who answers there is no node", "cannot be asked: dial tcp 127.0.0.1:1: connect: connection refused"} {
		if !strings.HasPrefix(lines[i+1], addresses[i+1]+" ") || !strings.Contains(lines[i+1], want) {
			t.Errorf("line %d is %q; want %s and %q", i+1, lines[i+1], addresses[i+1], want)
		}
	}
}

func TestAddressesOfNodesHaveThePortOfTheMetrics(t *testing.T) {
	got, err := nodeAddresses([]string{"node1", "10.0.0.2:9000", "[fd00::3]", "fd00::3", "[fd00::4]:9000", "node1:10249"})
	if want := []string{"node1:10249", "10.0.0.2:9000", "[fd00::3]:10249", "[fd00::4]:9000"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"", ":9000", "node1:0", "node1:http", "node1:70000", "http://node1:10249", "a:b:c"} {
		if _, err := nodeAddresses([]string{bad}); err == nil || !strings.Contains(err.Error(), "invalid node") {
			t.Errorf("%q: %v; want an error", bad, err)
		}
	}
}

// TestWaitingForNodesEnds, also when a node takes the endpoint up again in the round that was to decide.
func TestWaitingForNodesEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found := askNodes(ctx, []string{aNode(t, `{"revision":57}`, `{"revision":57,"clients":1}`)}, "10.1.2.3:80", 57); found.Left != 1 {
		t.Errorf("found %+v", found)
	}
}
