package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// TestServicesOfAClusterAnswerAtTheirAddresses, which no interface has: the node answers for their range from its start to its end, through a take-over and
// a crash. A successor deletes the routes that it does not have, and cleanup deletes what a crash leaves.
func TestServicesOfAClusterAnswerAtTheirAddresses(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	const ranges = "10.96.0.0/12,fd00:96::/108"
	dir, path := t.TempDir(), takeoverPath(t)
	addrs := map[string][2]string{"orders": {"10.96.0.10", "fd00:96::a"}, "stock": {"10.96.0.11", "fd00:96::b"}}
	for name, of := range addrs {
		at := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify(name)).Addr.IP
		writeRecord(t, dir, registry.SpecsPrefix+name, fmt.Sprintf(
			`{"kind":"Service","apiVersion":"v1","metadata":{"name":%q},"spec":{"clusterIP":%q,"clusterIPs":[%[2]q,%q],"ports":[{"port":5432}]}}`, name, of[0], of[1]))
		writeRecord(t, dir, registry.EndpointsPrefix+name, fmt.Sprintf(
			`{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":%q},"subsets":[{"addresses":[{"ip":%q}],"ports":[{"port":%d}]}]}`, name, at.Addr(), at.Port()))
	}
	serveIn := func(ranges string) *programtest.Program {
		t.Helper()
		args := []string{"-registry_dir=" + dir, "-service_address=cluster", "-takeover=" + path}
		if ranges != "" {
			args = append(args, "-service_cidr="+ranges)
		}
		return start(t, nil, args...)
	}
	serve := func() *programtest.Program { return serveIn(ranges) }
	answer := func() {
		t.Helper()
		for name, of := range addrs {
			for _, addr := range of {
				at := netip.AddrPortFrom(netip.MustParseAddr(addr), 5432)
				proxytest.Eventually(t, func() bool { return !proxytest.Refuses(at) }, "%s to open", at)
				if got := proxytest.WhoAnswers(t, at); got != name {
					t.Errorf("%q answers at %s; want %q", got, at, name)
				}
			}
		}
	}
	listed := func() int64 { return routesListed(t) }
	routes := func(want int64) {
		t.Helper()
		if got := listed(); got != want {
			t.Errorf("there are %d routes; want %d", got, want)
		}
	}

	first := serve()
	answer()
	second := serve()
	second.Stderr.Wait(t, "took over")
	first.Exit(t)
	answer()
	routes(2)
	kill(t, second)
	routes(2)
	third := serve()
	answer()
	fewer := serveIn("10.96.0.0/12")
	fewer.Stderr.Wait(t, "took over")
	third.Exit(t)
	proxytest.Eventually(t, func() bool { return listed() == 1 }, "the successor to delete the route that it does not have")
	fewer.Signal(t, syscall.SIGTERM)
	fewer.Exit(t)
	routes(0)

	before := serve()
	answer()
	without := serveIn("")
	without.Stderr.Wait(t, "took over")
	before.Exit(t)
	proxytest.Eventually(t, func() bool { return listed() == 0 }, "a successor without ranges to delete all routes")
	without.Signal(t, syscall.SIGTERM)
	without.Exit(t)

	last := serve()
	answer()
	kill(t, last)
	var stdout, stderr bytes.Buffer
	if got := run([]string{"cleanup"}, &stdout, &stderr); got != exitDone || stdout.String() != "deleted the route to 10.96.0.0/12 (-service_cidr)\ndeleted the route to fd00:96::/108 (-service_cidr)\n" {
		t.Errorf("cleanup: exit status %d, %q, %q", got, &stdout, &stderr)
	}
	routes(0)
}

// routesListed is the number of routes that ip(8) lists.
func routesListed(t *testing.T) int64 {
	t.Helper()
	out, err := exec.Command("sh", "-c", "ip -4 route show table local proto 107; ip -6 route show table local proto 107").CombinedOutput()
	if err != nil {
		t.Errorf("ip: %v, %s", err, out)
	}
	return int64(strings.Count(string(out), "local "))
}

// TestASuccessorThatNeverServesTakesNoRouteAlong: those that its predecessor has stay there, without a break, and those that it made itself go.
func TestASuccessorThatNeverServesTakesNoRouteAlong(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	path, missing := takeoverPath(t), filepath.Join(t.TempDir(), "missing")
	s := newSite(t)
	p := s.serve(t, "-takeover="+path, "-service_cidr=10.96.0.0/12")
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	next := start(t, nil, "-registry_dir="+missing, "-takeover="+path, "-service_cidr=10.96.0.0/12,fd00:96::/108")
	proxytest.Eventually(t, func() bool { return routesListed(t) == 2 }, "the successor to make the route that it has alone")
	next.Stderr.Wait(t, "services cannot be read")
	next.Signal(t, syscall.SIGTERM)
	next.Exit(t)
	if n := routesListed(t); n != 1 {
		t.Errorf("after its end there are %d routes; want 1", n)
	}
	if n := proxytest.Settled(t, func() int64 { return routesListed(t) }, 1200*time.Millisecond); n != 1 { // twice as long as a guard takes to put one back
		t.Errorf("then there are %d routes; want 1", n)
	}
	if log := p.Stderr.String(); strings.Contains(log, "another program has deleted the route") {
		t.Errorf("the route of the predecessor was gone for a while: %s", log)
	}
}

func TestARangeThatOverlapsANetworkOfTheNodeIsRefused(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	proxytest.MustRun(t, "ip", "addr", "add", "10.1.2.3/24", "dev", "lo")
	p := start(t, nil, "-registry_dir="+t.TempDir(), "-service_cidr=10.0.0.0/8")
	p.Stderr.Wait(t, "-service_cidr: 10.0.0.0/8 overlaps 10.1.2.3/24 of lo")
	if code := p.Exit(t).ExitCode(); code != exitFailed {
		t.Errorf("exit status %d; want %d", code, exitFailed)
	}
}
