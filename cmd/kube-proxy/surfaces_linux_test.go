package main

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"kubeproxy/proxy/proxytest"
)

// Where -kernel=auto carries nothing, clients are served by userspace. Page, metrics and log say what keeps the kernel from it, in one sentence.
func TestEverySurfaceSaysWhyTheKernelCarriesNothing(t *testing.T) {
	t.Parallel()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	for _, c := range []struct{ name, forwarding, complaint, reason string }{
		{"an endpoint cannot be reached", "1", "-kernel=auto carries no port in the kernel: 1 port with an endpoint that the kernel cannot reach.", "address"},
		{"nothing is forwarded", "0", "set net.ipv4.ip_forward=1", "off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, setting := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
				if err := os.WriteFile("/proc/sys/net/"+setting, []byte(c.forwarding), 0); err != nil {
					t.Fatal(err)
				}
			}
			s := &stage{dir: t.TempDir(), port: proxytest.FreePort(t)}
			s.service(t, "")
			s.endpoints(t, "", s.chat(t))
			address, url := operatorsURL(t)
			p := start(t, nil, "-registry_dir="+s.dir, "-kernel=auto", "-healthz_bind_address=", "-metrics_bind_address="+address)
			awaitPage(t, url+"/readyz", http.StatusOK, "ok")
			proxytest.TalkTo(t, proxytest.On(s.port)).MustSay(t, "hello")
			proxytest.Eventually(t, func() bool { return strings.Contains(verdictOf(t, url), c.complaint) }, "the page says %q; it says %q", c.complaint, verdictOf(t, url))
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
			if got := firing(t, url); len(got) > 0 {
				t.Errorf("the alerts %q fire, though clients are served", got)
			}
			if _, report := checked(t, s.dir); report.Summary.Warnings+report.Summary.Errors > 0 {
				t.Errorf("the check finds %+v", report.Records)
			}
		})
	}
}
