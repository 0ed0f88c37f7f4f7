package proxy

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/registry"
)

// A nameServer answers look-ups in the way a test wants, after a second each.
type nameServer struct {
	mu      sync.Mutex
	lookups int
	addrs   []netip.Addr
	err     error
}

func (s *nameServer) lookup(ctx context.Context, network, host string) ([]netip.Addr, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups++
	return s.addrs, s.err
}

func newTestResolver(s *nameServer) *resolver {
	r := newResolver(newOwnPorts(netip.MustParseAddr("127.0.0.1")))
	r.lookup = s.lookup
	return r
}

func hostAddr(host string, port uint16) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.Addr{}, port), Host: host}
}

func TestALiteralAddressIsNotLookedUp(t *testing.T) {
	r := newTestResolver(&nameServer{err: errors.New("asked for a literal address")})
	got, err := r.resolve(t.Context(), registry.TCP, registry.Addr{IP: netip.MustParseAddrPort("[::ffff:10.0.0.1]:80")})
	if want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestAHostNameIsLookedUpOnceForAllWhoAskAndThenCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &nameServer{addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}}
		r := newTestResolver(s)
		want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")}
		ask := func() {
			if got, err := r.resolve(t.Context(), registry.TCP, hostAddr("db.example", 80)); err != nil || !slices.Equal(got, want) {
				t.Errorf("got %v, %v; want %v", got, err, want)
			}
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(ask)
		}
		wg.Wait()
		time.Sleep(resolvedFor - time.Nanosecond)
		ask()
		if s.lookups != 1 {
			t.Errorf("looked up %d times; want once", s.lookups)
		}
		time.Sleep(time.Nanosecond)
		ask()
		if s.lookups != 2 {
			t.Errorf("looked up %d times after the answer was out of date; want twice", s.lookups)
		}
	})
}

func TestAHostNameThatFailsIsLeftAloneForAWhileAndThenAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &nameServer{err: errors.New("no such host")}
		r := newTestResolver(s)
		for range 3 {
			_, err := r.resolve(t.Context(), registry.TCP, hostAddr("db\n.example", 80))
			if err == nil || !strings.Contains(err.Error(), `"db\n.example"`) {
				t.Fatalf("got %v; want an error that quotes the name", err)
			}
		}
		if s.lookups != 1 {
			t.Errorf("looked up %d times; want once", s.lookups)
		}
		time.Sleep(unresolvedFor)
		s.err, s.addrs = nil, []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		if _, err := r.resolve(t.Context(), registry.TCP, hostAddr("db\n.example", 80)); err != nil {
			t.Errorf("a name that is there again: %v", err)
		}
	})
}

func TestTheOneWhoAskedFirstMayGiveUpWithoutHurtingTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestResolver(&nameServer{addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := r.resolve(impatient, registry.TCP, hostAddr("db", 80)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the impatient one got %v; want %v", err, context.DeadlineExceeded)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := r.resolve(t.Context(), registry.TCP, hostAddr("db", 80)); err != nil {
				t.Errorf("the patient one got %v", err)
			}
		})
		wg.Wait()
	})
}

func TestOwnListenersAreLeftOutOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestResolver(&nameServer{addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")}})
		r.own.add(tcpPort(80))
		got, err := r.resolve(t.Context(), registry.TCP, hostAddr("db", 80))
		if want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
		if _, err := r.resolve(t.Context(), registry.TCP, registry.Addr{IP: netip.MustParseAddrPort("127.0.0.1:80")}); !errors.Is(err, errOwnListener) {
			t.Errorf("got %v; want %v", err, errOwnListener)
		}
	})
}

func TestTheCacheOfHostNamesDropsWhatIsOutOfDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestResolver(&nameServer{addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
		var wg sync.WaitGroup
		for i := range maxHosts {
			wg.Go(func() { r.resolve(t.Context(), registry.TCP, hostAddr(string(rune('a'+i)), 80)) })
		}
		wg.Wait()
		time.Sleep(resolvedFor)
		r.resolve(t.Context(), registry.TCP, hostAddr("one more", 80))
		if n := len(r.hosts); n != 1 {
			t.Errorf("%d names are remembered; want 1", n)
		}
	})
}
