package main

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// TestClientsFollowTheKeyThatElects: the client of the one before is reset, one that comes between the two waits, and the next one is served; also after
// a restart without etcd.
func TestClientsFollowTheKeyThatElects(t *testing.T) {
	const leader = "/service/db/leader"
	for _, engine := range []string{"auto", "portable"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			one, two := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("m1")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("m2"))
			s.put(t, registry.EndpointsPrefix+"chat", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":[%q,%q],"annotations":{"kube-proxy/names":"%[1]s=m1,%[2]s=m2"}}`, one.Addr, two.Addr))
			s.put(t, registry.SpecsPrefix+"chat", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"chat","port":%d,
				"annotations":{"kube-proxy/holder-key":%q,"kube-proxy/on-removal":"close","kube-proxy/wait":"30s"}}`, s.port, leader))
			s.put(t, leader, "m1")
			flags := []string{"-holder_keys=/service/", "-engine=" + engine, "-drain_timeout=0", "-state_dir=" + t.TempDir()}
			p := s.serve(t, flags...)
			answers := func(want string) {
				t.Helper()
				if got := proxytest.TalkTo(t, proxytest.On(s.port)).MustSay(t, "who are you?"); got != want {
					t.Errorf("%s answers; want %s", got, want)
				}
			}
			answers("m1")
			c := s.talk(t)
			if _, err := s.kv.Delete(t.Context(), leader); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client of the one before is told %v; want a reset", err)
			}
			c = proxytest.TalkTo(t, proxytest.On(s.port))
			s.put(t, leader, "m2")
			if got := c.MustSay(t, "who are you?"); got != "m2" {
				t.Errorf("%s answers a client that waited; want m2", got)
			}
			answers("m2")
			p.Signal(t, syscall.SIGTERM)
			p.Exit(t)
			s.etcd.Stop()
			s.serve(t, flags...)
			answers("m2")
		})
	}
}
