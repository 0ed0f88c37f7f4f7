package conformancetest

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/golang/glog"

	"kubeproxy/proxy/proxytest"
)

// A client that tries every port gets no more log lines than one that keeps trying the same one.
func (s suite) TestASweepOverManyPortsDoesNotFillTheLog(t *testing.T) {
	cfg := s.config()
	const services = 100
	cfg.AllowedEndpoints = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	n := newNode(t, cfg)
	var all []change
	var empty, forbidden, dns []netip.AddrPort
	for i := range services {
		at := [3]netip.AddrPort{proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))}
		empty, forbidden, dns = append(empty, at[0]), append(forbidden, at[1]), append(dns, at[2])
		all = append(all, service(fmt.Sprint("empty", i), tcp(at[0].Port())), service(fmt.Sprint("dns", i), udp(at[2].Port())),
			service(fmt.Sprint("forbidden", i), tcp(at[1].Port())), endpoints(fmt.Sprint("forbidden", i), proxytest.At(proxytest.On(9))))
	}
	n.apply(all...)
	lines := func() int64 { return glog.Stats.Info.Lines() + glog.Stats.Warning.Lines() + glog.Stats.Error.Lines() }
	before := lines()
	for i := range services {
		proxytest.Refuses(empty[i])
		proxytest.Refuses(forbidden[i])
		proxytest.DialUDP(t, dns[i]).Write([]byte("dropped"))
	}
	proxytest.Eventually(t, func() bool {
		var dropped uint64
		for _, sum := range n.Totals() {
			for _, times := range sum.Dropped {
				dropped += times
			}
		}
		return dropped == services
	}, "every datagram to be dropped")
	n.end() // a client may be turned away before the line about it is written
	if got := lines() - before; got < 3 || got > 61 {
		t.Errorf("%d log lines for %d ports; want 20 of each of three kinds at most, and one of the end", got, 3*services)
	}
}
