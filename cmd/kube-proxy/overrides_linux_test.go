package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/cmd/internal/verbs"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// twoEndpoints gives the service two that chat.
func (s *site) twoEndpoints(t *testing.T) (a, b *proxytest.TCPServer) {
	t.Helper()
	a, b = proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("b"))
	s.put(t, registry.EndpointsPrefix+"chat", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":[%q,%q]}`, a.Addr, b.Addr))
	return a, b
}

// answers counts who answers so many new clients.
func (s *site) answers(t *testing.T, clients int) map[string]int {
	t.Helper()
	by := make(map[string]int)
	for range clients {
		c := proxytest.TalkTo(t, proxytest.On(s.port))
		name, err := c.Say("hello")
		if err != nil {
			t.Fatal(err)
		}
		by[name]++
		c.Conn.Close()
	}
	return by
}

// TestAnOperatorWhoIsEarlyEndsNoOverrideOfBefore: the control socket answers before the first state is there, and its first request writes the file anew.
func TestAnOperatorWhoIsEarlyEndsNoOverrideOfBefore(t *testing.T) {
	takeover, state := takeoverPath(t), t.TempDir()
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(state, "kube-proxy.overrides")
	of := fmt.Sprintf(`[{"service":"default/chat","endpoint":"10.0.0.1:80","word":"drain","began":%q,"until":%q}]`, time.Now().Format(time.RFC3339), time.Now().Add(time.Hour).Format(time.RFC3339))
	if err := os.WriteFile(file, []byte(of), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, nil, "-etcd_servers=http://127.0.0.1:1", "-bind_address=127.0.0.1", "-takeover="+takeover, "-state_dir="+state)
	h := hand{t, filepath.Join(filepath.Dir(takeover), controlName)}
	h.isThere()
	h.want("drain-node", exitDone, "until ")
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "10.0.0.1:80") || strings.Count(string(text), `"word"`) != 2 {
		t.Errorf("the file has %s, %v; want both overrides", text, err)
	}
}

// TestOverridesSurviveTakeOversAndRestarts: between any two steps, a process is replaced or killed. No client gets to the disabled endpoint.
func TestOverridesSurviveTakeOversAndRestarts(t *testing.T) {
	for _, engine := range []string{"portable", "epoll"} {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t)
			a, b := s.twoEndpoints(t)
			takeover, state := takeoverPath(t), t.TempDir()
			if err := os.Chmod(state, 0o700); err != nil {
				t.Fatal(err)
			}
			args := []string{"-engine=" + engine, "-takeover=" + takeover, "-state_dir=" + state}
			p := s.serve(t, args...)
			h := hand{t, filepath.Join(filepath.Dir(takeover), controlName)}
			h.isThere()
			h.want("weight chat "+b.Addr.String()+" 3", exitDone, "weight 3 until ")
			h.want("disable chat "+a.Addr.String(), exitDone, "no client until ")
			isIntact := func(after string) {
				t.Helper()
				if by := s.answers(t, 6); by["a"] != 0 {
					t.Errorf("after %s, %d clients got to the disabled endpoint", after, by["a"])
				}
				h.isThere()
				h.want("status chat", exitDone, "disabled by an operator", "given weight 3 by an operator")
			}
			isIntact("nothing")
			file := filepath.Join(state, "kube-proxy.overrides")
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			next := s.start(t, args...)
			next.Stderr.Wait(t, "overrides of operators are in force again")
			p.Exit(t)
			isIntact("a take-over")
			proxytest.Eventually(t, func() bool { return exists(file) }, "the successor to write %s, whatever its predecessor has left there", file)
			next.Signal(t, syscall.SIGKILL)
			next.Exit(t)
			p = s.serve(t, args...)
			isIntact("kill -9")
			p.Signal(t, syscall.SIGTERM)
			p.Exit(t)
			p = s.serve(t, args...)
			isIntact("a restart")
			s.put(t, registry.EndpointsPrefix+"chat", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":[%q]}`, b.Addr))
			p.Stderr.Wait(t, "is disabled → none: the endpoint has gone")
			proxytest.Eventually(t, func() bool {
				text, err := os.ReadFile(file)
				return err == nil && !strings.Contains(string(text), a.Addr.String()) && strings.Contains(string(text), b.Addr.String())
			}, "the file to have the other override alone")
			p.Signal(t, syscall.SIGKILL)
			p.Exit(t)
			s.serve(t, args...)
			s.put(t, registry.EndpointsPrefix+"chat", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":[%q,%q]}`, a.Addr, b.Addr))
			proxytest.Eventually(t, func() bool { return s.answers(t, 4)["a"] > 0 }, "an endpoint that returns is as its record says")
		})
	}
}

// TestOverridesOutlastAStartWithoutTheirSource: the node is killed while etcd is away, and starts with what files hold.
func TestOverridesOutlastAStartWithoutTheirSource(t *testing.T) {
	s := newSite(t)
	a, _ := s.twoEndpoints(t)
	takeover, state, dir, other := takeoverPath(t), t.TempDir(), t.TempDir(), proxytest.FreePort(t)
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	putFile(t, dir, registry.EndpointsPrefix+"other", fmt.Appendf(nil, `{"kind":"Endpoints","apiVersion":"v1beta1","endpoints":[%q]}`, a.Addr))
	putFile(t, dir, registry.SpecsPrefix+"other", fmt.Appendf(nil, `{"kind":"Service","apiVersion":"v1beta1","port":%d}`, other))
	args := []string{"-registry_dir=" + dir, "-takeover=" + takeover, "-state_dir=" + state}
	p := s.serve(t, args...)
	h := hand{t, filepath.Join(filepath.Dir(takeover), controlName)}
	h.isThere()
	h.want("drain chat "+a.Addr.String(), exitDone, "no new client until ")
	s.etcd.Kill()
	for range 2 { // the second node has what the first left in the file
		p.Signal(t, syscall.SIGKILL)
		p.Exit(t)
		p = s.start(t, args...)
		proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(other)) }, "port %d opens without etcd", other)
	}
	s.etcd.Start(t)
	s.opens(t)
	if by := s.answers(t, 6); by["a"] != 0 {
		t.Errorf("%d clients got to the drained endpoint", by["a"])
	}
	h.isThere()
	h.want("status chat", exitDone, "drained by an operator")
	s.put(t, registry.EndpointsPrefix+"chat", `{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":["127.0.0.1:1"]}`)
	p.Stderr.Wait(t, "is drained → none: the endpoint has gone")
}

// TestADrainedNodeIsNotReadyAndServes, until that is undone or its time is over; the last endpoint needs -force.
func TestADrainedNodeIsNotReadyAndServes(t *testing.T) {
	s := newSite(t)
	metrics, url := operatorsURL(t)
	h := controlled(t, s, "-metrics_bind_address="+metrics)
	ready := func(want int) {
		t.Helper()
		proxytest.Eventually(t, func() bool { status, _ := see(t, url+"/readyz"); return status == want }, "/readyz answers %d", want)
	}
	ready(http.StatusOK)
	h.want("drain-node -for=1h", exitDone, "this node: not ready until ")
	ready(http.StatusServiceUnavailable)
	h.want("status", verbs.Problem, "The node was drained by an operator (uid ")
	s.talk(t).Conn.Close()
	h.want("drain-node -undo", exitDone, "this node: the record counts again")
	ready(http.StatusOK)
	h.want("drain-node -for=10ms", exitDone, "not ready until ")
	ready(http.StatusOK)
	_, out, _ := h.do("status chat -o json")
	endpoint := out[strings.Index(out, `"address": "`)+len(`"address": "`):]
	endpoint = endpoint[:strings.IndexByte(endpoint, '"')]
	h.want("drain chat "+endpoint, exitFailed, "no other endpoint answers", "-force")
	h.want("drain chat "+endpoint+" -force", exitDone, "no new client until ")
	h.want("status chat", verbs.Problem, "weight 0")
	h.want("drain chat 10.9.9.9:1", exitFailed, "the service has no such endpoint")
	h.want("drain chat", exitUsage, "give SERVICE ADDR")
	h.want("weight chat "+endpoint+" many", exitUsage, "invalid weight many")
	if _, page := see(t, url+"/metrics"); !strings.Contains(page, "kubeproxy_overrides 1") {
		t.Error("the override is not among the metrics")
	}
	if _, page := see(t, url+"/configz"); !strings.Contains(page, `"word": "drain"`) {
		t.Error("the override is not at /configz")
	}
}
