//go:build linux

package hostile

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
)

// TestEndpointsThatFailAtOnce: clients of a service whose endpoints are many and all fail before a packet leaves.
// While its search goes on, changes are followed and operators are answered.
func TestEndpointsThatFailAtOnce(t *testing.T) {
	const port = "7301"
	const noRoute, unreachable, refused = "10.8.%d.%d:80", "10.9.%d.%d:80", "10.10.%d.%d:80"
	for _, c := range []struct {
		name, protocol, endpoints string
		number, calls, rate       int
		flags                     []string
	}{
		{"5,000 endpoints without a route", "TCP", noRoute, 5000, 20, 10, nil},
		{"5,000 unreachable endpoints", "TCP", unreachable, 5000, 20, 10, nil},
		{"20,000 endpoints without a route over UDP", "UDP", noRoute, 20_000, 20, 10, nil},
		{"300 endpoints without a route and many clients", "TCP", noRoute, 300, 200, 100, nil},
		{"60,000 endpoints that -allowed_endpoints refuses", "TCP", refused, 60_000, 20, 10, []string{"-allowed_endpoints=127.0.0.0/8"}},
	} {
		inOwnNetwork(t, c.name, func(t *testing.T) {
			proxytest.MustRun(t, "ip", "route", "add", "unreachable", "10.9.0.0/16")
			s := foundSite(t).forAttack()
			s.service(t, "failing", port, c.protocol, list(c.endpoints, c.number)...)
			s.start(t, "", c.flags...)
			s.becomesReady(t)
			aim := at(port)
			if c.protocol == "UDP" {
				aim = "udp:" + aim
			}
			r := s.withstands(t, fmt.Sprintf("%s, %d clients a second", c.name, c.rate), base, func(t *testing.T, atProxy bool) func() {
				over := call(t, atProxy, aim, c.calls, c.rate)
				s.works(t)
				return over
			})
			metric := map[string]string{"TCP": "kubeproxy_connections_ended_total", "UDP": "kubeproxy_udp_dropped_datagrams_total"}[c.protocol]
			r.Refused = told(s.ended(t, metric, "failing"))
			r.judge(t)
		})
	}
}

// TestSilentEndpointsStayInTheDescriptorBudget: a process that may have 512 descriptors, and 128 clients of
// endpoints that do not answer. Each client has several dials under way.
func TestSilentEndpointsStayInTheDescriptorBudget(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const port, most, clients = "7302", 512, 100
	proxytest.MustRun(t, "ip", "route", "add", "10.66.0.0/16", "dev", "lo") // what is sent there vanishes
	s := foundSite(t).forAttack()
	s.service(t, "vanish", port, "TCP", list("10.66.%d.%d:80", 20)...)
	s.start(t, "ulimit -n "+strconv.Itoa(most)+`; exec "$@"`, "-dial_timeout=1s") // by default the load would take longer to come than to a sink
	s.becomesReady(t)
	r := s.withstands(t, fmt.Sprintf("%d clients of endpoints that do not answer, %d descriptors", clients, most), base, func(t *testing.T, atProxy bool) func() {
		aim := sinkAddr
		if atProxy {
			aim = at(port)
		}
		all := crowd(t, aim, "", clients, 500)
		time.Sleep(time.Second) // by then each has dialled several
		s.works(t)
		return func() {
			for _, p := range all {
				dismiss(t, p)
			}
		}
	})
	if got := s.mostDescriptors.Load(); got > most-16 {
		t.Errorf("%d of %d descriptors were open; want 16 in reserve", got, most)
	}
	r.Refused = told(s.ended(t, "kubeproxy_connections_ended_total", "vanish"))
	r.judge(t)
}

// list spells n addresses: the pattern has two numbers, of 256 values each.
func list(pattern string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(pattern, i>>8, i&255)
	}
	return all
}
