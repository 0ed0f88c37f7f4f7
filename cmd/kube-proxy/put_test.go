package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kubeproxy/cmd/internal/inert"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// hostile is a name that would clear a terminal, and turn a line around.
const hostile = "a\x1b[2J\u202eb"

// TestARecordIsWrittenFromFlagsIfANodeWouldTakeIt: what the flags do not name stays, and nothing that was written by others is lost.
func TestARecordIsWrittenFromFlagsIfANodeWouldTakeIt(t *testing.T) {
	s := newSite(t)
	s.serve(t)
	do := func(want int, command ...string) string {
		t.Helper()
		var out bytes.Buffer
		args := append([]string{command[0], "-etcd_servers=" + s.etcd.URL()}, command[1:]...)
		if got := run(args, &out, &out); got != want {
			t.Errorf("%q: exit status %d, want %d: %s", command, got, want, &out)
		}
		return out.String()
	}
	web := proxytest.FreePort(t)
	a, b := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("a")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("b"))
	do(exitDone, "put", "web", fmt.Sprintf("-port=%d", web), "-endpoint="+a.Addr.String())
	answers := func(who string) {
		t.Helper()
		proxytest.Eventually(t, func() bool { name, _ := proxytest.AskTCP(proxytest.On(web)); return name == who }, "%s answers", who)
	}
	answers("a")
	do(exitDone, "put", "-endpoint", b.Addr.String(), "web")
	answers("b")
	s.put(t, registry.EndpointsPrefix+"default/web", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"web","endpoints":[%q],"annotations":{"kube-proxy/weight":"5"},"other":1.50}`, a.Addr))
	do(exitDone, "put", "web", "-endpoint="+b.Addr.String())
	if value, err := s.kv.Get(t.Context(), registry.EndpointsPrefix+"default/web"); err != nil || !strings.Contains(string(value.Kvs[0].Value), `"annotations":{"kube-proxy/weight":"5"}`) ||
		!strings.Contains(string(value.Kvs[0].Value), `"other":1.50`) {
		t.Errorf("the record is %s, %v; want what it had beside the endpoints", value.Kvs[0].Value, err)
	}
	for want, command := range map[string][]string{
		"nothing to write":                    {"put", "web"},
		"endpoint":                            {"put", "web", "-endpoint=nowhere"},
		"only flat records of one port are":   {"put", "nested", "-port=80"},
		"what is there is no JSON object":     {"put", "odd", "-port=80"},
		"etcd holds no record of default/nil": {"get", "nil"},
	} {
		s.put(t, registry.SpecsPrefix+"default/nested", `{"spec":{"ports":[]}}`)
		s.put(t, registry.SpecsPrefix+"default/odd", `[]`)
		if out := do(exitFailed, command...); !strings.Contains(out, want) {
			t.Errorf("%q says %q; want %q", command, out, want)
		}
	}
	if out := do(exitDone, "get"); !strings.Contains(out, "/registry/services/specs/default/web") || !strings.Contains(out, "/registry/services/endpoints/chat") || !strings.Contains(out, b.Addr.String()) {
		t.Errorf("all records are\n%s", out)
	}
	s.put(t, registry.EndpointsPrefix+hostile, `{"endpoints":["10.0.0.1:80"],"id":"b"}`)
	s.put(t, registry.EndpointsPrefix+"default/long", `{"id":"\u001b[2J"}`)
	for _, command := range [][]string{{"get"}, {"get", "-o=json"}, {"get", hostile}, {"get", "-o=json", hostile}, {"get", "long"}, {"rm", "-o=json", hostile}, {"put", "-o=json", "web", "-endpoint=" + a.Addr.String()}, {"rm", "-o", "json", "web"}} {
		out := do(exitDone, command...)
		if strings.ContainsFunc(out, func(r rune) bool { return !inert.Shows(r) }) {
			t.Errorf("%q has a character that a terminal may take for a command: %q", command, out)
		}
		if !slices.Contains(command, "-o=json") {
			continue
		}
		for line := range strings.Lines(out) {
			var fields struct{ Key string }
			if err := json.Unmarshal([]byte(line), &fields); err != nil || !strings.HasPrefix(fields.Key, "/registry/services/") {
				t.Errorf("%q: %v, %q", command, err, line)
			}
		}
	}
	do(exitUsage, "put")
	do(exitUsage, "put", "web", "-port=70000")
}
