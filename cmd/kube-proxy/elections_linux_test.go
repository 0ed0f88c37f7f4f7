package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kubeproxy/cmd/internal/verbs"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// TestAllPagesAgreeOnAKeyThatNobodyHolds: metrics, /configz, the status page and kube-proxy status name it once it is deleted, and until it is held again.
func TestAllPagesAgreeOnAKeyThatNobodyHolds(t *testing.T) {
	const leader = "/service/db/leader"
	s := newSite(t)
	one := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("m1"))
	s.put(t, registry.EndpointsPrefix+"chat", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":[%q],"annotations":{"kube-proxy/names":"%[1]s=m1"}}`, one.Addr))
	s.put(t, registry.SpecsPrefix+"chat", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"chat","port":%d,"annotations":{"kube-proxy/holder-key":%q}}`, s.port, leader))
	s.put(t, leader, "m1")
	address, url := operatorsURL(t)
	h := controlled(t, s, "-holder_keys=/service/", "-metrics_bind_address="+address, "-healthz_bind_address=")
	shows := func(held, changes int, holder, sentence string) {
		t.Helper()
		for _, want := range []string{fmt.Sprintf("kubeproxy_election_held{key=%q} %d\n", leader, held), fmt.Sprintf("kubeproxy_election_changes_total{key=%q} %d\n", leader, changes),
			fmt.Sprintf("kubeproxy_election_unserved{key=%q} %d\n", leader, 1-held)} {
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
		if fires := slices.Contains(firing(t, url), "KubeProxyNobodyElected"); fires != (held == 0) {
			t.Errorf("the alert of a key that nobody holds fires: %t", fires)
		}
		if held == 0 {
			h.want("status", verbs.Problem, sentence)
			h.want("status chat", verbs.Problem, sentence)
		} else {
			h.want("status chat", exitDone, "default/chat is well.")
		}
	}
	shows(1, 0, "m1", "All is well.")
	if _, err := s.kv.Delete(t.Context(), leader); err != nil {
		t.Fatal(err)
	}
	shows(0, 1, "", "Nobody holds key "+leader)
	s.put(t, leader, "m1")
	proxytest.Eventually(t, func() bool { _, out, _ := h.do("status"); return strings.Contains(out, "All is well.") }, "the next holder is in force")
	shows(1, 2, "m1", "All is well.")
}
