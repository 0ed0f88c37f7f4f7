package main

import (
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Where -kernel=auto carries nothing, clients are served by userspace. Page, status, metrics, log and alert say what keeps the kernel from it, and the check,
// which judges records, says nothing.
func TestEverySurfaceSaysWhyTheKernelCarriesNothing(t *testing.T) {
	t.Parallel()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	proxytest.MustRun(t, "sh", "-c", "ip link add wire type veth peer name far && ip link set far up && ip addr add 10.77.0.1/24 dev wire && ip link set wire up")
	elsewhere := proxytest.At(netip.MustParseAddrPort("10.77.0.9:80")) // no test asks it
	for _, c := range []struct {
		name, forwarding  string
		endpoint          registry.Addr // zero: one that answers
		complaint, reason string
	}{
		{"an endpoint cannot be reached", "1", registry.Addr{}, "-kernel=auto carries no port in the kernel: 1 port with an endpoint that the kernel cannot reach.", "address"},
		{"nothing is checked", "1", elsewhere, "-kernel=auto carries no port in the kernel: 1 port whose endpoints are not checked. Give -check_endpoints", "not-checked"},
		{"nothing is forwarded", "0", registry.Addr{}, "set net.ipv4.ip_forward=1", "off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, setting := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
				if err := os.WriteFile("/proc/sys/net/"+setting, []byte(c.forwarding), 0); err != nil {
					t.Fatal(err)
				}
			}
			s := &stage{dir: t.TempDir(), port: proxytest.FreePort(t)}
			s.service(t, "")
			served := c.endpoint == registry.Addr{}
			if served {
				c.endpoint = s.chat(t)
			}
			s.endpoints(t, "", c.endpoint)
			address, url := operatorsURL(t)
			h := aHand(t)
			p := start(t, nil, "-registry_dir="+s.dir, "-control="+h.path, "-kernel=auto", "-healthz_bind_address=", "-metrics_bind_address="+address)
			awaitPage(t, url+"/readyz", http.StatusOK, "ok")
			if served {
				proxytest.TalkTo(t, proxytest.On(s.port)).MustSay(t, "hello")
			}
			proxytest.Eventually(t, func() bool { return strings.Contains(verdictOf(t, url), c.complaint) }, "the page says %q; it says %q", c.complaint, verdictOf(t, url))
			h.agrees(url)
			p.Stderr.Wait(t, c.complaint)
			var reasons []string
			for _, m := range scraped(t, url) {
				if m.name == "kubeproxy_kernel_ports" && m.value > 0 {
					reasons = append(reasons, m.labels["reason"])
				}
			}
			if len(reasons) != 1 || reasons[0] != c.reason {
				t.Errorf("the metrics have the ports of %q; want those of %q", reasons, c.reason)
			}
			if !isFiringUnused(t, reasons) {
				t.Error("the alert KubeProxyKernelUnused does not fire")
			}
			if got := firing(t, url); len(got) > 0 {
				t.Errorf("the alerts %q fire as well, though clients are served", got)
			}
			if _, report := checked(t, s.dir); report.Summary.Warnings+report.Summary.Errors > 0 {
				t.Errorf("the check finds %+v", report.Records)
			}
		})
	}
}

// isFiringUnused reports whether KubeProxyKernelUnused fires for ports with these reasons. [firing] does not read its expression: there are ports
// with the first reasons, or with the second ones and none with the third.
func isFiringUnused(t *testing.T, reasons []string) bool {
	t.Helper()
	_, rule, _ := strings.Cut(monitoringFile(t, "alerts.yml"), "alert: KubeProxyKernelUnused")
	rule, _, _ = strings.Cut(rule, "for:")
	var has []bool
	for _, m := range regexp.MustCompile(`reason=~"([^"]*)"`).FindAllStringSubmatch(rule, -1) {
		has = append(has, slices.ContainsFunc(reasons, regexp.MustCompile("^(?:"+m[1]+")$").MatchString))
	}
	if len(has) != 3 {
		t.Fatalf("the alert names reasons %d times; want 3", len(has))
	}
	return has[0] || has[1] && !has[2]
}
