package conformancetest

import (
	"fmt"
	"testing"

	"kubeproxy/proxy/proxytest"
)

// The guard knows an address from a port: what is on the same port of another address belongs to
// another program.
func (s suite) TestTheSamePortOfAnotherAddressIsNotOurs(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	cfg := s.config()
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	elsewhere := fmt.Sprintf("127.0.0.2:%d", port)
	web := proxytest.ServeTCP(t, elsewhere, proxytest.Identify("web")).Addr
	proxytest.ServeUDP(t, elsewhere, proxytest.IdentifyUDP("dns"))
	n.apply(service("both", tcp(port), udp(port)), endpoints("both", web))
	if got := proxytest.WhoAnswers(t, proxytest.On(port)); got != "web" {
		t.Errorf("answered by %q", got)
	}
	if got := proxytest.DialUDP(t, proxytest.On(port)).Ask(t).Name; got != "dns" {
		t.Errorf("answered by %q", got)
	}
}

// A port is ours only while it is open: when its service goes, another program may serve there.
func (s suite) TestAPortThatWasOursMayBecomeAnEndpoint(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	was, now := proxytest.FreePort(t), proxytest.FreePort(t)
	n.apply(service("web", tcp(was)), endpoints("web", proxytest.At(proxytest.On(was))))
	if !proxytest.Refuses(proxytest.On(was)) {
		t.Fatal("a client of the loop was not turned away")
	}
	n.apply(service("web", tcp(now)))
	proxytest.ServeTCP(t, proxytest.On(was).String(), proxytest.Identify("web"))
	proxytest.Eventually(t, func() bool {
		answer, _ := proxytest.AskTCP(proxytest.On(now))
		return answer == "web"
	}, "an answer from what took the port over")
}
