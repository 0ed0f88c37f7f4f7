package udp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// newNamed is a fixture whose only endpoint is a name. Its addresses are set by move.
func newNamed(t *testing.T) (f *fixture, move func(to string)) {
	f = newFixture(t, engine.Config{}, registry.Addr{Host: "dns.example", IP: netip.AddrPortFrom(netip.Addr{}, 53)})
	var addr atomic.Pointer[netip.Addr]
	f.Resolver.Lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		now := addr.Load()
		if now == nil {
			return nil, errors.New("no nameserver answers")
		}
		return []netip.Addr{*now}, nil
	}
	return f, func(to string) { addr.Store(new(netip.MustParseAddr(to))) }
}

// A session that a predecessor began leaves an address, too, that its name does not stand for any more: the name is looked up beside it.
func TestAnAdoptedSessionLeavesAnAddressThatItsNameDoesNotStandForAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, move := newNamed(t)
		e := f.owner.Rotation.Endpoints()[0]
		record := &handover.UDP{Client: aClient.Client, Visit: handover.Visit{IsOn: true, Answered: true}}
		f.Budget.Take(1)
		s, v := new(Session), &Visit{To: netip.MustParseAddrPort("10.0.0.1:53")}
		f.port.Adopt(s, new(evicted), record, engine.Place{Claim: f.owner, Endpoint: e}, v)
		synctest.Wait()
		if got := s.Forward([]byte("no nameserver answers")); got != Send {
			t.Errorf("while nobody knows, a datagram is given verdict %v; want it sent", got)
		}
		move("10.0.0.1")
		time.Sleep(time.Minute)
		if got := s.Forward([]byte("the same address")); got != Send {
			t.Errorf("while the name stands for its address, a datagram is given verdict %v; want it sent", got)
		}
		move("10.0.0.2")
		time.Sleep(time.Minute)
		if got := s.Forward([]byte("another address")); got != Move {
			t.Errorf("when the name stands for another, a datagram is given verdict %v; want the session to move", got)
		}
		s.Departed(v, 0)
		if again, ok := s.Next(0); !ok || again != e {
			t.Error("the session is not offered the endpoint at its new address")
		}
		s.End(traffic.Idle)
		s.Finish()
	})
}

// TestAnAdoptedSessionLeavesANameThatDoesNotExistAnyMore, also one that was deleted while the predecessor had it.
func TestAnAdoptedSessionLeavesANameThatDoesNotExistAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newNamed(t)
		f.Resolver.Lookup = func(context.Context, string, string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		}
		f.Budget.Take(1)
		s, v := new(Session), &Visit{To: netip.MustParseAddrPort("10.0.0.1:53")}
		f.port.Adopt(s, new(evicted), &handover.UDP{Client: aClient.Client, Visit: handover.Visit{IsOn: true, Answered: true}}, engine.Place{Claim: f.owner, Endpoint: f.owner.Rotation.Endpoints()[0]}, v)
		time.Sleep(time.Minute)
		if got := s.Forward([]byte("q")); got != Move {
			t.Errorf("a datagram is given verdict %v; want the session to move", got)
		}
		s.Departed(v, 0)
		s.End(traffic.Idle)
		s.Finish()
	})
}

// An endpoint is offered once more at most, and of its addresses those that were not tried.
func TestASessionAsksOnceMoreForANameWhoseAddressRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, move := newNamed(t)
		move("10.0.0.1")
		d := f.begin(t)
		old, fresh := netip.MustParseAddrPort("10.0.0.1:53"), netip.MustParseAddrPort("10.0.0.2:53")
		e, _ := d.Next(0)
		resolve := func() []netip.AddrPort {
			addrs, err := f.Resolver.Resolve(t.Context(), registry.UDP, e.Addr)
			if err != nil {
				t.Fatal(err)
			}
			return d.Arrange(e, addrs)
		}
		if got := resolve(); len(got) != 1 || got[0] != old {
			t.Fatalf("it tries %v", got)
		}
		move("10.0.0.2")
		time.Sleep(2 * time.Second)
		d.Cannot(e, errRefused)
		again, ok := d.Next(0)
		if got := resolve(); !ok || again != e || len(got) != 1 || got[0] != fresh {
			t.Errorf("after a refusal it is offered the endpoint: %v, and tries %v; want %v", ok, got, fresh)
		}
		time.Sleep(2 * time.Second)
		d.Cannot(e, errRefused)
		if _, ok := d.Next(0); ok {
			t.Error("after the second refusal it is offered the endpoint again")
		}
		d.GiveUp()
		d.Finish()
	})
}
