package checks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A service with a thousand endpoints that hang, which are asked for a minute each, does not keep the checks of another one waiting.
func TestAServiceThatHangsHoldsOnlyItsShareOfTheChecks(t *testing.T) {
	c := New(quick, new(everywhere), new(everywhere))
	t.Cleanup(c.giveUp)
	hung := proxytest.ServeTCP(t, "0.0.0.0:0", proxytest.Hold)
	hanging := &ear{service: "hanging"}
	for i := range 1000 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 2, byte(i >> 8), byte(i)}), hung.Addr.IP.Port())
		c.Watch(want(c, registry.Addr{IP: at}, registry.Check{Path: "/", Interval: 2 * time.Minute, Timeout: time.Minute}), hanging)
	}
	c.begin(t.Context(), monotonic.Now()+time.Hour) // all are due
	held := len(c.underWay)
	if held < 100 {
		t.Errorf("only %d checks are under way; nothing else is due", held)
	}
	for i := range 50 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 3, 0, byte(i)}), hung.Addr.IP.Port())
		c.Watch(want(c, registry.Addr{IP: at}, registry.Check{}), &ear{service: "other"})
	}
	c.begin(t.Context(), monotonic.Now()+time.Hour)
	if got := len(c.underWay) - held; got != 50 {
		t.Errorf("of 50 checks of another service, %d are under way beside %d of the one that hangs", got, held)
	}
}

// Random services come, hang and end. After each step the rules of [shares] hold.
func TestPlacesAreSharedFairly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const places, services = 16, 24
	for range 200 {
		s := shares{free: places, of: make(map[registry.Name]*share)}
		var waiting [services]int
		var held [services][]*Target
		began := make([]int, services) // when it had its last turn; or when it came to wait, having nothing under way
		for step := 1; step < 400; step++ {
			if i := random.IntN(services); random.IntN(3) > 0 {
				target := &Target{watchers: map[Watcher]struct{}{&ear{service: fmt.Sprint(i)}: {}}}
				target.due = entry{of: target, at: time.Duration(step)}
				s.add(target)
				if waiting[i]++; waiting[i] == 1 && len(held[i]) == 0 {
					began[i] = step
				}
			} else if n := len(held[i]); n > 0 {
				s.leave(held[i][n-1])
				held[i] = held[i][:n-1]
			}
			free := places
			for i := range held {
				free -= len(held[i])
			}
			for target := s.next(); target != nil; target = s.next() {
				var is int
				fmt.Sscan(target.of().Name, &is)
				for other := range services {
					if waiting[other] > 0 && (len(held[other]) < len(held[is]) || len(held[other]) == len(held[is]) && began[other] < began[is]) {
						t.Fatalf("service %d has a place before %d, with %d and %d under way", is, other, len(held[is]), len(held[other]))
					}
				}
				if len(held[is]) >= free {
					t.Fatalf("service %d has %d places, and takes one of the last %d", is, len(held[is]), free)
				}
				waiting[is]--
				held[is] = append(held[is], target)
				free--
				began[is] = step
			}
			for i := range waiting {
				if waiting[i] > 0 && len(held[i]) < free {
					t.Fatalf("service %d waits with %d under way, and %d places are free", i, len(held[i]), free)
				}
			}
		}
	}
}

// of returns the service of the only watcher.
func (t *Target) of() (name registry.Name) {
	for w := range t.watchers {
		name = w.Service()
	}
	return name
}

// scarce has descriptors or has none.
type scarce struct {
	everywhere
	none atomic.Bool
}

func (s *scarce) Take(n int) bool { return !s.none.Load() && s.everywhere.Take(n) }

// A node that cannot check an address says so, and no longer calls it sound.
func TestAnAddressIsOverdueWithoutAResultForTwoIntervalsAndATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := new(scarce)
		c := New(Settings{On: true}, guard, guard)
		c.Ask = func(*Key) error { return nil }
		watcher := &ear{service: "web"}
		target := c.Watch(want(c, registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, registry.Check{}), watcher)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.Run(ctx) }()
		defer func() { stop(); <-done }()
		notes := func() int { watcher.mu.Lock(); defer watcher.mu.Unlock(); return watcher.notes }
		time.Sleep(time.Hour)
		if s := target.State(); !s.Passed() || s.Overdue || notes() != 1 {
			t.Fatalf("while it is checked the state is %+v, after %d notes", s, notes())
		}
		guard.none.Store(true)
		const bound = 12 * time.Second // two intervals of 5 s and a timeout of 2 s
		time.Sleep(bound - target.Interval - tick)
		if s := target.State(); s.Overdue {
			t.Errorf("it is overdue before its time: %+v", s)
		}
		time.Sleep(target.Interval + 2*tick)
		if s := target.State(); !s.Passed() || !s.Overdue || notes() != 2 {
			t.Errorf("without descriptors the state is %+v, after %d notes", s, notes())
		}
		o := c.Overdue()
		if want := (Overdue{Number: 1, Longest: target.Addr, Of: watcher.Service()}); o != want || c.Counts().Overdue != 1 {
			t.Errorf("%+v; want %+v", o, want)
		}
		guard.none.Store(false)
		time.Sleep(target.Interval + 2*tick)
		if s := target.State(); s.Overdue || notes() != 3 || c.Overdue() != (Overdue{}) || c.Counts().Overdue != 0 {
			t.Errorf("with descriptors the state is %+v, after %d notes", s, notes())
		}
		guard.none.Store(true)
		time.Sleep(time.Hour)
		if c.Unwatch(target, watcher); c.Counts().Overdue != 0 {
			t.Errorf("%d are overdue, and none is checked", c.Counts().Overdue)
		}
	})
}

// silentDNS knows no name, and does not answer before the context ends.
type silentDNS struct{ everywhere }

func (*silentDNS) Recall(_ registry.Protocol, addr registry.Addr) ([]netip.AddrPort, error, bool) {
	return []netip.AddrPort{addr.IP}, nil, addr.Host == ""
}
func (*silentDNS) Resolve(ctx context.Context, _ registry.Protocol, _ registry.Addr) ([]netip.AddrPort, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Nothing else need be due: the checker wakes up for what becomes overdue.
func TestANameWhoseLookUpHangsIsOverdueInTimeAndTheLookUpIsTheReason(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "beside an address that is checked": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guard := new(silentDNS)
				c := New(Settings{On: true, Interval: time.Second, Timeout: 500 * time.Millisecond}, guard, guard)
				c.Ask = func(*Key) error { return nil }
				watcher := &ear{service: "db"}
				target := c.Watch(want(c, registry.Addr{Host: "db.example", IP: netip.AddrPortFrom(netip.Addr{}, 80)}, registry.Check{}), watcher)
				for range others {
					c.Watch(want(c, registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, registry.Check{}), &ear{service: "web"})
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); c.Run(ctx) }()
				defer func() { stop(); <-done }()
				time.Sleep(target.Interval + target.bound() + 2*tick) // the first check begins within an interval
				if s := target.State(); !s.Overdue {
					t.Fatalf("the state is %+v", s)
				}
				if o, want := c.Overdue(), (Overdue{Number: 1, Longest: target.Addr, Of: watcher.Service(), LookUp: true}); o != want {
					t.Errorf("%+v; want %+v", o, want)
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if got, want := c.whyLocked(target), "the look-up of its name has not ended"; got != want {
					t.Errorf("the log gives the reason %q; want %q", got, want)
				}
			})
		})
	}
}

// Whoever has an address that hangs for longest cannot hold its place for longer than this.
func TestATimeoutIsBounded(t *testing.T) {
	c := New(quick, new(everywhere), new(everywhere))
	for _, k := range []struct{ interval, timeout, want time.Duration }{
		{time.Hour, time.Hour, MaxTimeout}, {10 * time.Second, time.Hour, 5 * time.Second}, {time.Hour, time.Second, time.Second},
	} {
		if got := want(c, registry.Addr{}, registry.Check{Interval: k.interval, Timeout: k.timeout}).Timeout; got != k.want {
			t.Errorf("interval %v, timeout %v: %v; want %v", k.interval, k.timeout, got, k.want)
		}
	}
}
