//go:build linux

package hostile

import (
	"strconv"
	"strings"
	"testing"
)

// TestEndpointsThatAreOurOwnListeners: however they are spelled, each of their clients is sent away, and makes no
// connection but its own. The operators' ports are no endpoints either: who may reach a service is not
// to read what operators read.
func TestEndpointsThatAreOurOwnListeners(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	s := newSite(t, "-udp_timeout=1s")
	var to []string
	for i, host := range []string{"127.0.0.1", "127.9.9.9", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "10.78.0.1", "localhost"} {
		itself, there, back, operators, health, datagrams := strconv.Itoa(8000+i), strconv.Itoa(8100+i), strconv.Itoa(8200+i), strconv.Itoa(8300+i), strconv.Itoa(8400+i), strconv.Itoa(8500+i)
		name := "loop-" + strconv.Itoa(i)
		s.service(t, name+"-itself", itself, "TCP", host+":"+itself)
		s.service(t, name+"-there", there, "TCP", host+":"+back)
		s.service(t, name+"-back", back, "TCP", host+":"+there)
		s.service(t, name+"-metrics", operators, "TCP", host+":10249")
		s.service(t, name+"-healthz", health, "TCP", host+":10256")
		s.service(t, name+"-datagrams", datagrams, "UDP", host+":"+datagrams)
		to = append(to, at(itself), at(there), at(operators), at(health), "udp:"+at(datagrams))
	}
	eventually(t, func() bool { return s.sum(t, "kubeproxy_listeners") == 4+6*8 }, "all services are open")
	calls := number(4000, 200)
	felt := s.beside(t, func(t *testing.T, atProxy bool) func() {
		aim := strings.Join(to, ",")
		if !atProxy {
			aim = sinkAddr
		}
		callers := cast(t, "caller", aim, calls, 1000)
		callers.Stdout.Wait(t, "done")
		return func() { dismiss(t, callers) }
	})
	s.works(t)
	// Of five services of each spelling four are TCP's. The two unspecified addresses are no endpoints to begin with.
	clients := float64(calls * s.rounds() * 4 / 5)
	eventually(t, func() bool { // callers wait for 200 ms, and a name may take longer to look up
		return s.sum(t, "kubeproxy_connections_ended_total", "service", "default/loop-*") >= clients
	}, "all clients have been turned away")
	got := s.ended(t, "kubeproxy_connections_ended_total", "loop-*")
	if got["own_listener"] != clients*6/8 || got["no_endpoints"] != clients*2/8 || len(got) != 2 {
		t.Errorf("of %.0f clients the proxy ended: %s; want own_listener %.0f and no_endpoints %.0f", clients, told(got), clients*6/8, clients*2/8)
	}
	if dropped := s.ended(t, "kubeproxy_udp_dropped_datagrams_total", "loop-*"); dropped["own_listener"] == 0 {
		t.Errorf("datagrams dropped: %s; want own_listener", told(dropped))
	}
	if sent := s.sum(t, "kubeproxy_sent_bytes_total", "service", "default/loop-*"); sent != 0 {
		t.Errorf("%.0f bytes were relayed to ourselves", sent)
	}
	r := s.row(t, "endpoints that are our own listeners, 40 spellings", 64<<20)
	r.Refused, r.Felt = told(got), felt
	r.judge(t)
}
