package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

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
	p.Stderr.Wait(t, fmt.Sprintf("etcd at [%s] is version 2.3.8: following it by its v2 API (-etcd_version=auto)\n", etcd.URL))
	proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(port)) }, "port %d opens", port)
	c := proxytest.TalkTo(t, proxytest.On(port))
	c.MustSay(t, "hello")
	c.Conn.Close()
	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	if exit, report := checked(t, "-etcd_servers="+etcd.URL); exit != exitDone || len(report.Records) != 2 {
		t.Errorf("check: exit status %d, %+v", exit, report)
	}
}
