package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"kubeproxy/cmd/internal/control"
	"kubeproxy/cmd/internal/statuspage"
	"kubeproxy/cmd/internal/verbs"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A hand runs commands on one node.
type hand struct {
	t    *testing.T
	path string // of its socket
}

// do runs a command, and returns its exit status and what it printed.
func (h hand) do(command string) (status int, stdout, stderr string) {
	h.t.Helper()
	args := strings.Fields(command)
	var out, errors bytes.Buffer
	status = run(append([]string{args[0], "-control=" + h.path}, args[1:]...), &out, &errors)
	return status, out.String(), errors.String()
}

// want runs a command, and checks its exit status and a part of what it prints.
func (h hand) want(command string, status int, parts ...string) {
	h.t.Helper()
	got, stdout, stderr := h.do(command)
	if got != status {
		h.t.Errorf("%s: exit status %d, want %d\n%s%s", command, got, status, stdout, stderr)
	}
	for _, part := range parts {
		if !strings.Contains(stdout+stderr, part) {
			h.t.Errorf("%s says\n%s%s; want %q", command, stdout, stderr, part)
		}
	}
}

// aHand is for a node that is given the path of its control socket.
func aHand(t *testing.T) hand {
	t.Helper()
	return hand{t, filepath.Join(filepath.Dir(takeoverPath(t)), controlName)}
}

// agrees waits until "kube-proxy status" says what the status page says, and exits accordingly.
func (h hand) agrees(url string) {
	h.t.Helper()
	proxytest.Eventually(h.t, func() bool {
		page := verdictOf(h.t, url)
		status, out, _ := h.do("status -o json")
		var report statuspage.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil || !strings.HasPrefix(page, report.Verdict) {
			return false
		}
		wrong := !strings.HasPrefix(page, "All is well.")
		return report.OK != wrong && (status == verbs.Problem) == wrong && (status == exitDone) != wrong
	}, "status says what the page says: %s", verdictOf(h.t, url))
}

// isThere waits for the node to listen: its ports may open a moment earlier, and so may those of a successor.
func (h hand) isThere() {
	h.t.Helper()
	proxytest.Eventually(h.t, func() bool {
		conn, err := net.Dial("unix", h.path)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, "the control socket")
}

// controlled starts a node whose control socket is beside that of its take-over.
func controlled(t *testing.T, s *site, args ...string) hand {
	t.Helper()
	h := aHand(t)
	s.serve(t, append([]string{"-takeover=" + filepath.Join(filepath.Dir(h.path), "takeover")}, args...)...)
	h.isThere()
	return h
}

// TestAnOperatorSeesClientsAndEndsThem, with each engine: their list, the end of one, and waiting for the last.
func TestAnOperatorSeesClientsAndEndsThem(t *testing.T) {
	for _, engine := range []string{"portable", "epoll", "ring"} {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t)
			h := controlled(t, s, "-engine="+engine)
			h.want("status", exitDone, "All is well.")
			h.want("status chat", exitDone, "default/chat is well.", "ENDPOINT")
			h.want("status nobody", exitFailed, "there is no service default/nobody")
			proxytest.Eventually(t, func() bool { // the look for the open port was a client
				status, out, _ := h.do("sessions")
				return status == exitDone && strings.Contains(out, "no client")
			}, "no client")
			one, other := s.talk(t), s.talk(t)
			status, out, _ := h.do("sessions -o json -service chat")
			var first control.Session
			if err := json.NewDecoder(strings.NewReader(out)).Decode(&first); err != nil || status != exitDone || strings.Count(out, "\n") != 2 {
				t.Fatalf("exit status %d, %v: %s", status, err, out)
			}
			h.want("wait -endpoint "+first.Endpoint+" -timeout 1ms", verbs.Problem, "has 2 clients")
			h.want("kill", exitUsage, "name those to end")
			h.want("kill -client "+one.Conn.LocalAddr().String(), exitDone, "ended 1 client of")
			if err := proxytest.Discard(one.Conn); !proxytest.IsReset(err) {
				t.Errorf("who was ended saw %v; want a reset", err)
			}
			other.MustSay(t, "still there?")
			other.Conn.Close()
			h.want("wait -endpoint "+first.Endpoint, exitDone, "has no client on this node")
			h.want("log", exitDone, "operator (uid ", "1 of client "+one.Conn.LocalAddr().String()+" → ended")
		})
	}
}

// TestNodesLetGoOfADrainedEndpointOneAfterTheOther: two nodes carry a client each to an endpoint that is drained everywhere. Who waits is told which node still
// has one, and which has not come to a revision.
func TestNodesLetGoOfADrainedEndpointOneAfterTheOther(t *testing.T) {
	s := newSite(t)
	a, _ := s.twoEndpoints(t)
	var nodes []string
	var clients []*proxytest.Talk
	for i, engine := range []string{"portable", "auto"} {
		metrics, _ := operatorsURL(t)
		bind := fmt.Sprintf("127.0.0.%d", i+1)
		s.start(t, "-engine="+engine, "-rr_random_start=false", "-metrics_bind_address="+metrics, "-bind_address="+bind)
		place := netip.AddrPortFrom(netip.MustParseAddr(bind), s.port)
		proxytest.Eventually(t, func() bool { return proxytest.Listens(place) }, "%v opens", place)
		c := proxytest.TalkTo(t, place)
		for name, _ := c.Say("hello"); name != "a"; name, _ = c.Say("hello") { // the next client gets the other endpoint
			c.Conn.Close()
			c = proxytest.TalkTo(t, place)
		}
		nodes, clients = append(nodes, metrics), append(clients, c)
	}
	h := hand{t, "/nonexistent"}
	status, out, _ := h.do("drain -everywhere -etcd_servers=" + s.etcd.URL() + " chat " + a.Addr.String())
	_, after, ok := strings.Cut(out, " at revision ")
	revision, _, _ := strings.Cut(after, ":")
	if status != exitDone || !ok {
		t.Fatalf("exit status %d: %s", status, out)
	}
	wait := "wait -endpoint " + a.Addr.String() + " -nodes " + strings.Join(nodes, ",") + " -revision "
	h.want(wait+revision+" -timeout 2s", verbs.Problem, "2 nodes of 2 still have", nodes[0]+"  1 client", nodes[1]+"  1 client")
	clients[0].Conn.Close()
	h.want(wait+revision+" -timeout 2s", verbs.Problem, "1 node of 2 still have", nodes[1]+"  1 client")
	clients[1].Conn.Close()
	h.want(wait+revision, exitDone, "has no client on any of 2 nodes, and revision "+revision+" is in force")
	h.want(wait+"1000000 -timeout 1s", verbs.Problem, "2 nodes of 2 still have", "revision "+revision+"; 0 clients")
	h.want("wait -endpoint a:1 -revision 5", exitUsage, "-revision is more than 0, and goes with -nodes")
}

// TestALogOfChangesSaysWhatChangedWhereAndWhen: on the standard error of the node too, and what a stranger writes does nothing to a terminal.
func TestALogOfChangesSaysWhatChangedWhereAndWhen(t *testing.T) {
	s := newSite(t)
	h := controlled(t, s)
	h.want("log", exitDone, "no change since the first state was in force")
	other := proxytest.FreePort(t)
	s.put(t, registry.SpecsPrefix+"other\x1b[2J", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"other","port":%d}`, other))
	s.put(t, registry.EndpointsPrefix+"chat", `{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":["127.0.0.1:9"]}`)
	proxytest.Eventually(t, func() bool {
		_, out, _ := h.do("log chat")
		return strings.Contains(out, "endpoints default/chat: 1 → 1 endpoints (came 127.0.0.1:9, went ")
	}, "the change of endpoints is in the log")
	h.want("log -n 1 chat", exitDone, "etcd@")
	if _, out, _ := h.do("log"); strings.Contains(out, "\x1b") || !strings.Contains(out, fmt.Sprintf("none → tcp port %d", other)) {
		t.Errorf("the log says %q", out)
	}
	h.want("log -o json", exitDone, `"revision": `)
}

// TestADrainEverywhereIsInTheRecordUntilItIsUndone: nodes follow it, and no node is asked. Where nothing can be written, it says so.
func TestADrainEverywhereIsInTheRecordUntilItIsUndone(t *testing.T) {
	s := newSite(t)
	a, b := s.twoEndpoints(t)
	s.serve(t, "-rr_random_start=false")
	answered := func(want int) func() bool {
		return func() bool { by := s.answers(t, 6); return by["a"] == want && by["a"]+by["b"] == 6 }
	}
	proxytest.Eventually(t, answered(3), "both endpoints answer")
	h := hand{t, "/nonexistent"}
	etcd := " -everywhere -etcd_servers=" + s.etcd.URL()
	h.want("drain chat "+a.Addr.String()+etcd, exitDone, "wrote /registry/services/endpoints/chat at revision ", ": weights none → "+a.Addr.String()+"=0")
	proxytest.Eventually(t, answered(0), "the drained endpoint has no new client")
	h.want("drain chat "+b.Addr.String()+etcd, exitFailed, "no other endpoint of default/chat has a weight", "-force")
	h.want("weight -o json chat "+b.Addr.String()+" 5"+etcd, exitDone, `"did":"wrote"`, `"weights":"`+a.Addr.String()+"=0,"+b.Addr.String()+`=5"`)
	h.want("enable chat "+a.Addr.String()+etcd, exitDone, "wrote ")
	h.want("enable chat "+b.Addr.String()+etcd, exitDone, ": weights "+b.Addr.String()+"=5 → none")
	h.want("enable chat "+b.Addr.String()+etcd, exitDone, "kept ")
	proxytest.Eventually(t, answered(3), "both endpoints answer again")
	for args, want := range map[string]string{
		"drain chat 10.0.0.1 -everywhere":                                          "no etcd: give -etcd_servers or -etcd_config",
		"drain chat 10.0.0.1 -everywhere -registry_dir=/records":                   `this node reads files: edit the annotation kube-proxy/weight of the endpoints below "/records"`,
		"drain chat 10.0.0.1 -everywhere -master=http://127.0.0.1:1":               "this node reads an API server (-master or -kubeconfig), to which nothing is written",
		"drain chat 10.0.0.1 -for=1h" + etcd:                                       "-for and -everywhere are mutually exclusive",
		"drain chat 10.0.0.1 -everywhere -etcd_version=2 -etcd_servers=http://a:1": "etcd 2 has no leases and no transactions",
		"disable chat 10.0.0.1" + etcd:                                             "flag provided but not defined: -everywhere",
	} {
		h.want(args, exitUsage, want)
	}
}

// TestWithoutANodeAVerbSaysSo.
func TestWithoutANodeAVerbSaysSo(t *testing.T) {
	h := hand{t, filepath.Join(t.TempDir(), "control.sock")}
	h.want("status", exitFailed, "no kube-proxy listens there; -control or -config says where it does")
	h.want("status a b", exitUsage, "unexpected argument: b")
	h.want("log -n many", exitUsage, "invalid value")
}
