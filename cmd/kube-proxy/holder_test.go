package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
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

// TestAllPagesAgreeOnAKeyThatNobodyHolds: metrics, /configz, the status page and kube-proxy status name it once it is deleted, and until it is held again.
func TestAllPagesAgreeOnAKeyThatNobodyHolds(t *testing.T) {
	const leader = "/service/db/leader"
	s := newSite(t)
	one := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("m1"))
	s.put(t, registry.EndpointsPrefix+"chat", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":[%q],"annotations":{"kube-proxy/names":"%[1]s=m1"}}`, one.Addr))
	s.put(t, registry.SpecsPrefix+"chat", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"chat","port":%d,"annotations":{"kube-proxy/holder-key":%q}}`, s.port, leader))
	s.put(t, leader, "m1")
	address, url := operatorsURL(t)
	control := takeoverPath(t)
	s.serve(t, "-holder_keys=/service/", "-metrics_bind_address="+address, "-healthz_bind_address=", "-control="+control)
	shows := func(held, changes int, holder, sentence string) {
		t.Helper()
		for _, want := range []string{fmt.Sprintf("kubeproxy_election_held{key=%q} %d\n", leader, held), fmt.Sprintf("kubeproxy_election_changes_total{key=%q} %d\n", leader, changes)} {
			proxytest.Eventually(t, func() bool { _, text := see(t, url+"/metrics"); return strings.Contains(text, want) }, "/metrics has %s", want)
		}
		var z struct {
			Etcd struct {
				Elections []struct {
					Key, Holder string
					Total       int `json:"changes_total"`
				}
			}
		}
		status, text := see(t, url+"/configz")
		if err := json.Unmarshal([]byte(text), &z); err != nil || status != http.StatusOK || len(z.Etcd.Elections) != 1 || z.Etcd.Elections[0].Key != leader || z.Etcd.Elections[0].Holder != holder || z.Etcd.Elections[0].Total != changes {
			t.Errorf("/configz: %d, %v, %+v", status, err, z)
		}
		proxytest.Eventually(t, func() bool {
			_, text := see(t, url+"/")
			return strings.Contains(text, sentence) && strings.Contains(text, `id="h-elections"`)
		}, "the status page says %s", sentence)
		proxytest.Eventually(t, func() bool {
			_, stdout, _ := run(t, "status", "-control="+control, "chat")
			return strings.Contains(stdout, sentence) || held == 1
		}, "status says %s", sentence)
	}
	shows(1, 0, "m1", "All is well.")
	if _, err := s.kv.Delete(t.Context(), leader); err != nil {
		t.Fatal(err)
	}
	shows(0, 1, "", "Nobody holds key "+leader)
	s.put(t, leader, "m1")
	shows(1, 2, "m1", "All is well.")
}
