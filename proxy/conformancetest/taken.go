package conformancetest

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
)

// Ports that another program has, as when two proxies run on one machine, are news, but not ten thousand times.
func (s suite) TestPortsThatAreAllTakenDoNotFillTheLogAndOpenOnceTheyAreFree(t *testing.T) {
	cfg := s.config()
	const services = 200
	cfg.HeldPortDelay, cfg.HeldPortProbePeriod = 100*time.Millisecond, 20*time.Millisecond
	n := newNode(t, cfg)
	web := served(t, proxytest.Identify("web"))
	var strangers []net.Listener
	var all []change
	for i := range services {
		port, name := proxytest.FreePort(t), fmt.Sprint("s", i)
		stranger, err := net.Listen("tcp", proxytest.On(port).String())
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		strangers = append(strangers, stranger)
		all = append(all, service(name, tcp(port)), endpoints(name, web))
	}
	lines := func() int64 { return glog.Stats.Info.Lines() + glog.Stats.Warning.Lines() + glog.Stats.Error.Lines() }
	before := lines()
	n.tell(all...)
	for _, s := range n.Status() {
		if s.Err == nil {
			t.Errorf("port %d is open, and another program has it", s.ID.Number)
		}
	}
	for _, stranger := range strangers {
		stranger.Close()
	}
	proxytest.Eventually(t, func() bool {
		return !slices.ContainsFunc(n.Status(), func(s proxy.PortStatus) bool { return s.Err != nil })
	}, "every port to open")
	if got := lines() - before; got > 60 {
		t.Errorf("%d lines are logged for %d ports that could not be opened, and that could be in the end", got, services)
	}
	if got := proxytest.WhoAnswers(t, proxytest.On(n.Status()[services-1].ID.Number)); got != "web" {
		t.Errorf("answered by %q", got)
	}
}
