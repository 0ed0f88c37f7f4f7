package main

import (
	"bytes"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/nftables"

	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

func TestCleanupSaysWhatItDeletedAndWhatItLeft(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	cleanup := func(status int, want string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if got := run([]string{"cleanup"}, &stdout, &stderr); got != status || stderr.Len() > 0 || !strings.HasPrefix(stdout.String(), want) {
			t.Errorf("exit status %d, %q, %q; want %d and %q", got, &stdout, &stderr, status, want)
		}
	}
	cleanup(exitDone, "nothing of a kube-proxy is in the kernel\n")

	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	conn.AddTable(&nftables.Table{Name: "kube-proxy-1-0123abcd", Family: nftables.TableFamilyINet})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	cleanup(exitDone, "deleted table inet kube-proxy-1-0123abcd, ")

	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	running := kernel.New(netip.IPv4Unspecified(), kernel.Node{
		Algorithm: func(registry.Balance) registry.Balance { return registry.RoundRobin },
		Refuse:    func(registry.Protocol, netip.AddrPort) error { return nil },
	})
	running.Prepare()
	defer running.Close()
	cleanup(exitFailed, "left table inet kube-proxy-")
}
