package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// TestChecksOverTLSTrustTheAuthoritiesOfTheFile, which is read again.
func TestChecksOverTLSTrustTheAuthoritiesOfTheFile(t *testing.T) {
	t.Parallel()
	ca, other := etcdtest.NewCA(t), etcdtest.NewCA(t)
	cert, err := tls.LoadX509KeyPair(ca.Issue(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	server.StartTLS()
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	install := func(ca *etcdtest.CA) {
		pem, err := os.ReadFile(ca.File)
		if err == nil {
			err = os.WriteFile(file, pem, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install(other)
	dir := t.TempDir()
	writeRecord(t, dir, registry.SpecsPrefix+"web", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"web","port":%d,
		"annotations":{"kube-proxy/check-tls":"verify","kube-proxy/check-interval":"500ms"}}`, proxytest.FreePort(t)))
	writeRecord(t, dir, registry.EndpointsPrefix+"web", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"web","endpoints":[%q]}`, server.Listener.Addr()))
	p := start(t, nil, "-registry_dir="+dir, "-endpoint_check_cafile="+file)
	p.Stderr.Wait(t, fmt.Sprintf("checks of %s over tcp fail: the certificate is of no authority that is trusted (-endpoint_check_cafile)", server.Listener.Addr()))
	install(ca)
	p.Stderr.Wait(t, fmt.Sprintf("checks of %s over tcp pass again", server.Listener.Addr()))
}
