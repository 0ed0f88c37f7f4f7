package proxy

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Endpoints that are host names, and descriptors for attempts beside the first, on both engines.

// onEachEngine runs a test for a TCP port of each engine. The port has the endpoints that the test gives it.
func onEachEngine(t *testing.T, test func(t *testing.T, e *chassis, open func(...registry.Addr) netip.AddrPort)) {
	cfg := Config{BindAddress: proxytest.Loopback}.withDefaults()
	own := newOwnPorts(proxytest.Loopback)
	for _, kind := range []Kind{Portable, Epoll} {
		t.Run(kind.String(), func(t *testing.T) {
			proxytest.NothingLeaks(t)
			var e engine
			var base *chassis
			if kind == Portable {
				p := newPortable(cfg, own)
				e, base = p, &p.chassis
			} else {
				p := newEpoll(cfg, own)
				e, base = p, &p.chassis
			}
			test(t, base, func(endpoints ...registry.Addr) netip.AddrPort {
				port := proxytest.FreePort(t)
				s, err := e.listen(tcpPort(port), ownerOf(rotationOf(endpoints...)))
				must(t, err)
				t.Cleanup(func() {
					s.close()
					e.drain(t.Context())
					if used := base.budget.used.Load(); used != 0 {
						t.Errorf("in the end %d descriptors are taken", used)
					}
				})
				return proxytest.On(port)
			})
		})
	}
}

// TestBesideASilentAddressOfANameItsNextAddressIsTried: the second of two addresses has the client after 250 ms.
func TestBesideASilentAddressOfANameItsNextAddressIsTried(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e *chassis, open func(...registry.Addr) netip.AddrPort) {
		silent := proxytest.BlackHole(t)
		proxytest.ServeTCP(t, fmt.Sprintf("127.0.0.2:%d", silent.IP.Port()), proxytest.Identify("second"))
		e.resolver.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
			return []netip.Addr{proxytest.Loopback, netip.MustParseAddr("127.0.0.2")}, nil
		}
		addr := open(hostAddr("db", silent.IP.Port()))
		for range 2 { // the name is looked up, and remembered
			if got := proxytest.WhoAnswers(t, addr); got != "second" {
				t.Errorf("answered by %q", got)
			}
		}
	})
}

// TestANameThatIsResolvedLateCostsNoClientItsConnection: the first nameserver is dead, and the second answers after the
// whole time that dials have. Clients that come while the answer is refreshed get the old one.
func TestANameThatIsResolvedLateCostsNoClientItsConnection(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e *chassis, open func(...registry.Addr) netip.AddrPort) {
		endpoint := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("named")).Addr
		answer, second := make(chan struct{}), make(chan struct{})
		var lookups atomic.Int64
		e.resolver.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			wait := answer
			if lookups.Add(1) > 1 {
				wait = second
			}
			select {
			case <-wait:
				return []netip.Addr{proxytest.Loopback}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		addr := open(hostAddr("db", endpoint.IP.Port()))
		client, name := proxytest.Dial(t, addr), make(chan string, 1)
		go func() {
			said, err := io.ReadAll(client)
			name <- fmt.Sprint(string(said), " ", err)
		}()
		proxytest.Eventually(t, func() bool { return lookups.Load() == 1 }, "the look-up to begin")
		time.Sleep(e.cfg.DialTotalTimeout + time.Second/2)
		close(answer)
		if got := proxytest.Receive(t, name, "the client to be served"); got != "named <nil>" {
			t.Errorf("the client got %q", got)
		}
		e.resolver.mu.Lock()
		e.resolver.hosts["db"].settled = time.Now()
		e.resolver.mu.Unlock()
		for range 3 {
			if got := proxytest.WhoAnswers(t, addr); got != "named" {
				t.Errorf("while the answer is refreshed, answered by %q", got)
			}
		}
		if n := lookups.Load(); n != 2 {
			t.Errorf("%d look-ups; want 2", n)
		}
		close(second)
	})
}

// TestBesideASilentEndpointAnotherIsTriedOnlyIfThereIsADescriptor: dials that wait beside one another are within the budget.
func TestBesideASilentEndpointAnotherIsTriedOnlyIfThereIsADescriptor(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e *chassis, open func(...registry.Addr) netip.AddrPort) {
		live := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("live"))
		addr := open(proxytest.BlackHole(t), live.Addr)
		all := e.budget.clients - int(e.budget.used.Load()) - 2 // all but those of a client
		if !e.budget.take(all) {
			t.Fatal("no room")
		}
		began := sinceStart()
		if got := proxytest.WhoAnswers(t, addr); got != "live" {
			t.Errorf("answered by %q", got)
		}
		if took := sinceStart() - began; took < e.cfg.DialTimeout {
			t.Errorf("answered after %v: the second endpoint was tried beside the first without a descriptor", took)
		}
		e.budget.release(all)
	})
}
