package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubeproxy/config/etcdsource/etcdtest"
)

// TestTLSFlags has an etcd that wants a certificate of its clients, and shows one that only its own
// authority verifies.
func TestTLSFlags(t *testing.T) {
	ca := etcdtest.NewCA(t)
	cert, key := ca.Issue(t, "etcd")
	etcd := etcdtest.StartProcess(t, "--cert-file="+cert, "--key-file="+key, "--client-cert-auth", "--trusted-ca-file="+ca.File)
	cert, key = ca.Issue(t, "kube-proxy")
	file := filepath.Join(t.TempDir(), "etcd.json")
	text := fmt.Sprintf(`{"config": {"certFile": %q, "keyFile": %q}, "cluster": {"machines": [%q]}}`, cert, key, etcd.URL())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	servers, config := "-etcd_servers="+etcd.URL(), "-etcd_config="+file
	authority, unverified := "-etcd_cafile="+ca.File, "-etcd_insecure_skip_tls_verify"
	certFlag, keyFlag := "-etcd_certfile="+cert, "-etcd_keyfile="+key
	const (
		works    = "etcd read at revision 1"
		unknown  = "unknown authority"
		nameless = "unreachable" // and no more: etcd hangs up, and at times its reason is lost with the connection
	)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"everything given", []string{servers, authority, certFlag, keyFlag}, works},
		{"not verified", []string{servers, unverified, certFlag, keyFlag}, works},
		{"the system's authorities", []string{servers, certFlag, keyFlag}, unknown},
		{"no certificate of ours", []string{servers, authority}, nameless},
		{"a file without authorities", []string{config}, unknown}, // D4: v0.4 did not verify then
		{"flags beside the file", []string{config, authority, certFlag, keyFlag}, works},
		{"flags instead of what the file says", []string{config, authority}, nameless},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, tt.args...)
			p.Stderr.Wait(t, tt.want)
			if tt.want == nameless && strings.Contains(p.Stderr.String(), unknown) {
				t.Error("it did not come so far as to show a certificate")
			}
		})
	}
}
