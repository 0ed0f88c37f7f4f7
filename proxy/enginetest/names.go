package enginetest

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Endpoints that are host names, and descriptors for attempts beside the first, on each engine.

// TestBesideASilentAddressOfANameItsNextAddressIsTried: the second of two addresses has the client after 250 ms.
func (u suite) TestBesideASilentAddressOfANameItsNextAddressIsTried(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	e, open := u.newTCP(t, engine.Config{})
	silent := proxytest.BlackHole(t)
	proxytest.ServeTCP(t, fmt.Sprintf("127.0.0.2:%d", silent.IP.Port()), proxytest.Identify("second"))
	e.Resolver.Lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		time.Sleep(50 * time.Millisecond) // as a nameserver may take: the 250 ms begin with its answer
		return []netip.Addr{proxytest.Loopback, netip.MustParseAddr("127.0.0.2")}, nil
	}
	addr := open(Named("db", silent.IP.Port()))
	for range 2 { // the name is looked up, and remembered
		if got := proxytest.WhoAnswers(t, addr); got != "second" {
			t.Errorf("answered by %q", got)
		}
	}
}

// TestANameThatIsResolvedLateCostsNoClientItsConnection: the first nameserver is dead, and the second answers after the
// whole time that dials have.
func (u suite) TestANameThatIsResolvedLateCostsNoClientItsConnection(t *testing.T) {
	e, open := u.newTCP(t, engine.Config{DialTotalTimeout: time.Second})
	endpoint := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("named")).Addr
	answer := make(chan struct{})
	var lookups atomic.Int64
	e.Resolver.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		lookups.Add(1)
		select {
		case <-answer:
			return []netip.Addr{proxytest.Loopback}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	addr := open(Named("db", endpoint.IP.Port()))
	client, name := proxytest.Dial(t, addr), make(chan string, 1)
	go func() {
		said, err := io.ReadAll(client)
		name <- fmt.Sprint(string(said), " ", err)
	}()
	proxytest.Eventually(t, func() bool { return lookups.Load() == 1 }, "the look-up to begin")
	time.Sleep(e.Cfg.DialTotalTimeout + time.Second/2)
	close(answer)
	if got := proxytest.Receive(t, name, "the client to be served"); got != "named <nil>" {
		t.Errorf("the client got %q", got)
	}
}

// TestDialsOfANameThatIsKnownEndWithTheTotalTimeout: only who waits for a look-up is given more time.
func (u suite) TestDialsOfANameThatIsKnownEndWithTheTotalTimeout(t *testing.T) {
	e, open := u.newTCP(t, engine.Config{DialTimeout: 2 * proxytest.Patience, DialTotalTimeout: 200 * time.Millisecond})
	silent := Named("db", proxytest.BlackHole(t).IP.Port())
	e.Resolver.Lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{proxytest.Loopback}, nil
	}
	if _, err := e.Resolver.Resolve(t.Context(), registry.TCP, silent); err != nil {
		t.Fatal(err)
	}
	if addr := open(silent); !proxytest.Refuses(addr) {
		t.Error("the client was not refused")
	}
}

// TestBesideASilentEndpointAnotherIsTriedOnlyIfThereIsADescriptor: dials that wait beside one another are within the budget.
func (u suite) TestBesideASilentEndpointAnotherIsTriedOnlyIfThereIsADescriptor(t *testing.T) {
	e, open := u.newTCP(t, engine.Config{})
	live := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("live"))
	addr := open(proxytest.BlackHole(t), live.Addr)
	all := e.Budget.Clients - int(e.Budget.Used.Load()) - 2 // all but those of a client
	if !e.Budget.Take(all) {
		t.Fatal("no room")
	}
	began := monotonic.Now()
	if got := proxytest.WhoAnswers(t, addr); got != "live" {
		t.Errorf("answered by %q", got)
	}
	if took := monotonic.Now() - began; took < e.Cfg.DialTimeout {
		t.Errorf("answered after %v: the second endpoint was tried beside the first without a descriptor", took)
	}
	e.Budget.Release(all)
}
