package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/etcdv2source/etcdv2test"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// put2 writes a record by the v2 API.
func put2(t *testing.T, etcd *etcdv2test.Server, key, value string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, etcd.URL+"/v2/keys"+key, strings.NewReader(url.Values{"value": {value}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

// v0.4's own command line follows the etcd 2 of its days, and one line says so.
func TestTheCommandLineOfV04FollowsAnEtcd2(t *testing.T) {
	etcd := etcdv2test.Start(t)
	port := proxytest.FreePort(t)
	endpoint := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	put2(t, etcd, registry.EndpointsPrefix+"chat", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","endpoints":[%q]}`, endpoint.Addr))
	put2(t, etcd, registry.SpecsPrefix+"chat", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","port":%d}`, port))
	p := start(t, nil, "-etcd_servers="+etcd.URL, "-bind_address=127.0.0.1", "--logtostderr=true", "--v=0", "-dial_timeout=15s", "-dial_total_timeout=15s")
	p.Stderr.Wait(t, fmt.Sprintf("following etcd 2: %s says that it is version 2.3.8 (-etcd_version=auto)\n", etcd.URL))
	proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(port)) }, "port %d opens", port)
	c := proxytest.TalkTo(t, proxytest.On(port))
	c.MustSay(t, "hello")
	c.Conn.Close()
	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	exit, stdout, stderr := checkedText("-etcd_servers=" + etcd.URL)
	if want := fmt.Sprintf("reading etcd 2: %s says that it is version 2.3.8 (-etcd_version=auto)\n", etcd.URL); exit != exitDone || stderr != want {
		t.Errorf("check: exit status %d, stderr %q; want %q\n%s", exit, stderr, want, stdout)
	}
	if n := strings.Count(stdout, "chat"); n < 2 {
		t.Errorf("check does not speak of both records:\n%s", stdout)
	}
}

// checkedText is check as it is read by eye.
func checkedText(args ...string) (exit int, stdout, stderr string) {
	var out, err strings.Builder
	exit = runCheck(args, &out, &err)
	return exit, out.String(), err.String()
}

// An etcd 3.0 to 3.5 may have its registry in the v2 store, which its v3 API does not show.
func TestACheckNamesARegistryThatOnlyTheV2StoreHas(t *testing.T) {
	v3, v2 := etcdtest.StartProcess(t), etcdv2test.Start(t)
	v2.SetVersion(`{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}`)
	put2(t, v2, registry.SpecsPrefix+"chat", `{"kind":"Service","apiVersion":"v1beta1","port":80}`)
	both := proxytest.ServeTCP(t, "127.0.0.1:0", func(client *net.TCPConn) {
		in := bufio.NewReader(client)
		to := strings.TrimPrefix(v2.URL, "http://")
		if first, err := in.Peek(3); err == nil && string(first) == "PRI" { // HTTP/2
			to = strings.TrimPrefix(v3.URL(), "http://")
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer server.Close()
		go func() {
			_, _ = io.Copy(server, in)
			server.Close()
		}()
		_, _ = io.Copy(client, server)
	})
	url := "http://" + both.Addr.String()
	exit, stdout, stderr := checkedText("-etcd_servers=" + url)
	want := "etcd at " + url + " has no records in its v3 store, but has /registry/services/ in its v2 store: use -etcd_version=2, or move the records with etcdctl migrate\n"
	if exit != exitDone || stderr != want {
		t.Errorf("exit status %d, stderr %q; want %q\n%s", exit, stderr, want, stdout)
	}
	if exit, _, stderr := checkedText("-etcd_servers="+url, "-etcd_version=3"); exit != exitDone || stderr != "" {
		t.Errorf("with -etcd_version=3: exit status %d, stderr %q; want nothing", exit, stderr)
	}
}

// TestACheckOfAnEtcd2RefusesAKeyThatElects, as the node does, also where nobody has said that it is an etcd 2.
func TestACheckOfAnEtcd2RefusesAKeyThatElects(t *testing.T) {
	etcd := etcdv2test.Start(t)
	put2(t, etcd, "/registry/services/specs/db", `{"kind":"Service","apiVersion":"v1beta1","id":"db","port":5432,"annotations":{"kube-proxy/holder-key":"/leader/db"}}`)
	for _, version := range []string{"auto", "2"} {
		if exit, stdout, stderr := checkedText("-etcd_version="+version, "-etcd_servers="+etcd.URL, "-holder_keys=/leader/"); exit != exitFailed {
			t.Errorf("-etcd_version=%s: exit status %d: %s%s", version, exit, stdout, stderr)
		}
	}
}
