package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubeproxy/internal/apiserver"
	"kubeproxy/proxy/proxytest"
)

// A service of an API server, of either age, is open on this node, with its endpoints behind it; etcd is not asked for anything.
func TestServicesOfAnAPIServerAreServed(t *testing.T) {
	for name, dialect := range map[string]apiserver.Dialect{"0.4.4": apiserver.V044, "1.36.3": apiserver.V1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, port := apiserver.New(dialect), proxytest.FreePort(t)
			endpoint := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
			api.PutService("default", "chat", int(port))
			api.PutEndpoints("default", "chat", endpoint.Addr.String())
			server := httptest.NewServer(api)
			t.Cleanup(server.Close)
			t.Cleanup(server.CloseClientConnections)
			p := start(t, nil, "-master", server.URL, "-etcd_servers=127.0.0.1:1", "-bind_address=127.0.0.1")
			proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(port)) }, "port %d opens", port)
			if got := proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello"); got != "a" {
				t.Errorf("the endpoint calls itself %q", got)
			}
			p.Stderr.Wait(t, "-etcd_servers is ignored: services are read from the API server")
			api.DeleteService("default", "chat")
			proxytest.Eventually(t, func() bool { return !proxytest.Listens(proxytest.On(port)) }, "port %d closes", port)
		})
	}
}

// A kubeconfig names the server and the token, and -master another address of it.
func TestAKubeconfigIsEnough(t *testing.T) {
	dir := t.TempDir()
	api, port := apiserver.New(apiserver.V1), proxytest.FreePort(t)
	api.Token("secret")
	api.PutService("default", "chat", int(port))
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	for name, text := range map[string]string{"token": "secret\n", "config": fmt.Sprintf(`
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {tokenFile: token}}]`, server.URL)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, nil, "-kubeconfig", filepath.Join(dir, "config"), "-bind_address=127.0.0.1")
	proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(port)) }, "port %d opens", port)
	if log := p.Stderr.String(); strings.Contains(log, "secret") || !strings.Contains(log, "the token crosses the network in the clear") {
		t.Errorf("the log says of the token: %s", log)
	}
}
