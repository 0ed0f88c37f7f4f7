package conformancetest

import (
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/removal"
	"kubeproxy/registry"
)

// What becomes of a connection when the endpoint it was given goes, or the service it came to.

// removals are the ways to take a connection's endpoint or service from it. Each begins with the service "web"
// on port at, with the endpoint was.
var removals = []struct {
	how string
	do  func(n *node, at uint16, was, other registry.Addr)
}{
	{"the endpoint is replaced", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(endpoints("web", other))
	}},
	{"the endpoint is one of several that go", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(endpoints("web", other, was))
		n.apply(endpoints("web", other))
	}},
	{"all endpoints go", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(endpoints("web"))
	}},
	{"the endpoint goes and comes back", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(endpoints("web", other))
		n.apply(endpoints("web", was, other))
	}},
	{"the service goes", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(noService("web"))
	}},
	{"the service goes and comes back", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(noService("web"))
		n.apply(service("web", tcp(at)))
	}},
	{"the service moves to another port", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(service("web", tcp(proxytest.FreePort(n.t))))
	}},
	{"the service goes, and another takes its port over", func(n *node, at uint16, was, other registry.Addr) {
		n.tell(serviceSince("heir", 2, tcp(at)), endpoints("heir", other))
		n.apply(noService("web"), endpoints("web"))
	}},
}

// changes leave a connection its endpoint and its service.
var changes = []struct {
	how string
	do  func(n *node, at uint16, was, other registry.Addr)
}{
	{"an endpoint is added", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(endpoints("web", other, was))
	}},
	{"the endpoints are listed in another order", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(endpoints("web", was, other))
		n.apply(endpoints("web", other, was))
	}},
	{"the service is created anew in one step", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(serviceSince("web", 9, tcp(at)))
	}},
	{"the service has another port besides", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(service("web", tcp(at), udp(at)))
	}},
	{"the port has another name", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(service("web", registry.Port{Name: "http", Protocol: registry.TCP, Number: at}), endpointsOf("web", "http", other), endpointsOf("web", "", was))
	}},
	{"other clients may come", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(from("web", at, "127.0.0.1/32"))
	}},
	{"the client may come no more", func(n *node, at uint16, was, other registry.Addr) {
		n.apply(from("web", at, "10.0.0.0/8"))
	}},
	{"another service wants the port", func(n *node, at uint16, was, other registry.Addr) {
		n.tell(serviceSince("heir", 2, tcp(at)), endpoints("heir", other))
	}},
}

// removing runs a test with a connection to the service "web".
func (s suite) removing(t *testing.T, then removal.Policy, test func(t *testing.T, n *node, at uint16, was, other registry.Addr, talk *proxytest.Talk)) {
	t.Helper()
	cfg := s.config()
	cfg.OnRemoval = then
	n := newNode(t, cfg)
	was, other := served(t, proxytest.Chat("was")), served(t, proxytest.Chat("other"))
	at := tcpThrough(t, n, was)
	talk := proxytest.TalkTo(t, at)
	talk.MustSay(t, "hello")
	test(t, n, at.Port(), was, other, talk)
}

func (s suite) TestARemovalLeavesConnectionsAloneByDefault(t *testing.T) {
	for _, r := range append(removals, changes...) {
		t.Run(r.how, func(t *testing.T) {
			s.removing(t, removal.Policy{}, func(t *testing.T, n *node, at uint16, was, other registry.Addr, talk *proxytest.Talk) {
				r.do(n, at, was, other)
				if got := talk.MustSay(t, "still here"); got != "was" {
					t.Errorf("answered by %q", got)
				}
			})
		})
	}
}

func (s suite) TestARemovalClosesConnectionsWhenAsked(t *testing.T) {
	for _, r := range removals {
		t.Run(r.how, func(t *testing.T) {
			s.removing(t, removal.Policy{Close: true}, func(t *testing.T, n *node, at uint16, was, other registry.Addr, talk *proxytest.Talk) {
				r.do(n, at, was, other)
				if err := proxytest.Discard(talk.Conn); !proxytest.IsReset(err) {
					t.Errorf("the client saw %v; want a reset", err)
				}
			})
		})
	}
}

// A record that merely changes is no removal. (Nor is it one when the client may come no more: it has
// come.)
func (s suite) TestAChangeOfARecordClosesNoConnection(t *testing.T) {
	for _, c := range changes {
		t.Run(c.how, func(t *testing.T) {
			s.removing(t, removal.Policy{Close: true}, func(t *testing.T, n *node, at uint16, was, other registry.Addr, talk *proxytest.Talk) {
				c.do(n, at, was, other)
				if got := talk.MustSay(t, "still here"); got != "was" {
					t.Errorf("answered by %q", got)
				}
			})
		})
	}
}

// The time is counted from the removal, and that an endpoint comes back does not stop it.
func (s suite) TestARemovalClosesConnectionsAfterAWhile(t *testing.T) {
	const after = 150 * time.Millisecond
	for _, r := range removals {
		t.Run(r.how, func(t *testing.T) {
			s.removing(t, removal.Policy{Close: true, After: after}, func(t *testing.T, n *node, at uint16, was, other registry.Addr, talk *proxytest.Talk) {
				removed := time.Now()
				r.do(n, at, was, other)
				if err := proxytest.Discard(talk.Conn); !proxytest.IsReset(err) {
					t.Errorf("the client saw %v; want a reset", err)
				}
				if took := time.Since(removed); took < after {
					t.Errorf("closed after %v; want %v", took, after)
				}
			})
		})
	}
}

// Who comes between two removals belongs to the endpoint as it is then.
func (s suite) TestAConnectionThatBeganAfterTheReturnOfItsEndpointStays(t *testing.T) {
	s.removing(t, removal.Policy{Close: true}, func(t *testing.T, n *node, at uint16, was, other registry.Addr, talk *proxytest.Talk) {
		n.apply(endpoints("web", other))
		n.apply(endpoints("web", was))
		next := proxytest.TalkTo(t, proxytest.On(at))
		next.MustSay(t, "hello")
		if err := proxytest.Discard(talk.Conn); !proxytest.IsReset(err) {
			t.Errorf("the client of before saw %v; want a reset", err)
		}
		if got := next.MustSay(t, "still here"); got != "was" {
			t.Errorf("answered by %q", got)
		}
	})
}

// However long removed connections may stay, a shutdown does not wait for longer than its drain.
func (s suite) TestAShutdownDoesNotWaitForWhatWasRemoved(t *testing.T) {
	s.removing(t, removal.Policy{Close: true, After: time.Hour}, func(t *testing.T, n *node, at uint16, was, other registry.Addr, talk *proxytest.Talk) {
		n.apply(noService("web"))
		talk.MustSay(t, "still here")
		drain, start := s.config().DrainTimeout, time.Now()
		n.end()
		if took := time.Since(start); took < drain || took > proxytest.Patience {
			t.Errorf("stopped after %v; want after the drain timeout, %v", took, drain)
		}
		if err := proxytest.Discard(talk.Conn); !proxytest.IsReset(err) {
			t.Errorf("the client saw %v; want a reset", err)
		}
	})
}
