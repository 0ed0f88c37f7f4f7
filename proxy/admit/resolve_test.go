package admit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

func (s *nameServer) set(addrs []netip.Addr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addrs, s.err = addrs, err
}

func newTestResolver(s *nameServer) *Resolver {
	r := NewResolver(NewOwnPorts(netip.MustParseAddr("127.0.0.1")))
	r.Lookup = s.lookup
	return r
}

func hostAddr(host string, port uint16) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.Addr{}, port), Host: host}
}

func TestALiteralAddressIsNotLookedUp(t *testing.T) {
	r := newTestResolver(&nameServer{err: errors.New("asked for a literal address")})
	got, err := r.Resolve(t.Context(), registry.TCP, registry.Addr{IP: netip.MustParseAddrPort("[::ffff:10.0.0.1]:80")})
	if want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestAHostNameIsLookedUpOnceForAllWhoAskAndRefreshedBesideThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &nameServer{addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}}
		r := newTestResolver(s)
		want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")}
		ask := func(patience time.Duration) {
			t.Helper()
			start := time.Now()
			if got, err := r.Resolve(t.Context(), registry.TCP, hostAddr("db.example", 80)); err != nil || !slices.Equal(got, want) || time.Since(start) != patience {
				t.Errorf("got %v, %v after %v; want %v after %v", got, err, time.Since(start), want, patience)
			}
		}
		lookedUp := func(times int) {
			t.Helper()
			time.Sleep(time.Second) // as long as a look-up takes
			synctest.Wait()
			if s.lookups != times {
				t.Errorf("looked up %d times; want %d", s.lookups, times)
			}
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { ask(time.Second) })
		}
		wg.Wait()
		const fresh = leastKept / 2
		time.Sleep(fresh - time.Nanosecond)
		ask(0)
		if s.lookups != 1 {
			t.Errorf("looked up %d times; want once", s.lookups)
		}
		time.Sleep(time.Nanosecond)
		ask(0)
		ask(0)
		lookedUp(2)
		time.Sleep(leastKept) // an answer this old waits a moment for a better one
		ask(graceTime)
		lookedUp(3)

		s.set(nil, errors.New("no nameserver answers"))
		time.Sleep(staleFor - time.Minute)
		ask(graceTime)
		lookedUp(4)
		time.Sleep(time.Minute)
		if got, err := r.Resolve(t.Context(), registry.TCP, hostAddr("db.example", 80)); !errors.Is(err, ErrUnresolved) {
			t.Errorf("got %v, %v an hour after the last answer", got, err)
		}
	})
}

// TestANameThatIsGoneIsNotServedFromMemory: a nameserver that answers decides, and one that does not answer does not.
func TestANameThatIsGoneIsNotServedFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &nameServer{addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
		r := newTestResolver(s)
		r.Resolve(t.Context(), registry.TCP, hostAddr("db", 80))
		s.set(nil, &net.DNSError{Err: "no such host", IsNotFound: true})
		time.Sleep(leastKept)
		r.Resolve(t.Context(), registry.TCP, hostAddr("db", 80))
		time.Sleep(time.Second)
		synctest.Wait()
		if got, err := r.Resolve(t.Context(), registry.TCP, hostAddr("db", 80)); !errors.Is(err, ErrUnresolved) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// TestThousandsOfNamesAreLookedUpFewAtATimeAndTheRestRefused: silent nameservers cost a bounded number of clients, look-ups and descriptors.
func TestThousandsOfNamesAreLookedUpFewAtATimeAndTheRestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestResolver(nil)
		var now, most atomic.Int64
		r.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			defer now.Add(-1)
			most.Store(max(most.Load(), now.Add(1)))
			if end, _ := ctx.Deadline(); time.Until(end) < 5*time.Second {
				t.Errorf("a look-up begins with %v left", time.Until(end))
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		r.maxWaiting = 1000
		r.Budget = NewBudget(20_000)
		var clients sync.WaitGroup
		var refused atomic.Int64
		for i := range 3000 {
			clients.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				start := time.Now()
				_, err := r.Resolve(t.Context(), registry.TCP, hostAddr(fmt.Sprint("name-", i), 80))
				if !errors.Is(err, ErrUnresolved) {
					t.Errorf("got %v", err)
				}
				if time.Since(start) == 0 {
					refused.Add(1)
				} else if time.Since(start) > LookUpTimeout {
					t.Errorf("it took %v", time.Since(start))
				}
			})
		}
		time.Sleep(time.Second)
		if used := r.Budget.Used.Load(); used != maxLookUps*lookUpDescriptors || most.Load() != maxLookUps || refused.Load() != 2000 || r.waiting != 1000 {
			t.Errorf("%d descriptors, %d look-ups, %d waiting, %d refused", used, most.Load(), r.waiting, refused.Load())
		}
		clients.Wait()
		synctest.Wait()
		if r.waiting != 0 || r.Budget.Used.Load() != 0 {
			t.Errorf("in the end %d wait, and %d descriptors are taken", r.waiting, r.Budget.Used.Load())
		}
	})
}

// TestOneNameLeavesOthersRoomToWait: clients that wait for one name take a quarter of the room at most.
func TestOneNameLeavesOthersRoomToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestResolver(&nameServer{addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
		r.maxWaiting = 40
		var failed atomic.Int64
		var clients sync.WaitGroup
		for range 40 {
			clients.Go(func() {
				if _, err := r.Resolve(t.Context(), registry.TCP, hostAddr("slow", 80)); err != nil {
					failed.Add(1)
				}
			})
		}
		synctest.Wait()
		if _, err := r.Resolve(t.Context(), registry.TCP, hostAddr("other", 80)); err != nil {
			t.Error(err)
		}
		clients.Wait()
		if failed.Load() != 30 {
			t.Errorf("%d of 40 were refused; want 30", failed.Load())
		}
	})
}

// TestTheLastGoodAnswerServesHoweverManyClientsCome: nameservers have fallen silent, and the answer is two minutes old.
func TestTheLastGoodAnswerServesHoweverManyClientsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestResolver(nil)
		silent := false
		r.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			if silent {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
		}
		r.maxWaiting = 40
		if _, err := r.Resolve(t.Context(), registry.TCP, hostAddr("web", 80)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * mostKept)
		silent = true
		var clients sync.WaitGroup
		for range 1000 {
			clients.Go(func() {
				if _, err := r.Resolve(t.Context(), registry.TCP, hostAddr("web", 80)); err != nil {
					t.Error(err)
				}
			})
		}
		clients.Wait()
		r.Close()
	})
}

// TestAClientThatMayNotWaitIsToldAtOnce, by the loop itself and without a goroutine.
func TestAClientThatMayNotWaitIsToldAtOnce(t *testing.T) {
	r := newTestResolver(nil)
	r.waiting, r.maxWaiting = 40, 40
	if _, err, ok := r.Recall(registry.TCP, hostAddr("web", 80)); !ok || !errors.Is(err, ErrUnresolved) {
		t.Errorf("got %v, %v; want a refusal", err, ok)
	}
}

func TestAHostNameThatFailsIsLeftAloneForAWhileAndThenAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &nameServer{err: errors.New("no such host")}
		r := newTestResolver(s)
		for range 3 {
			_, err := r.Resolve(t.Context(), registry.TCP, hostAddr("db\n.example", 80))
			if err == nil || !strings.Contains(err.Error(), `"db\n.example"`) {
				t.Fatalf("got %v; want an error that quotes the name", err)
			}
		}
		if s.lookups != 1 {
			t.Errorf("looked up %d times; want once", s.lookups)
		}
		time.Sleep(unresolvedFor)
		s.err, s.addrs = nil, []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		if _, err := r.Resolve(t.Context(), registry.TCP, hostAddr("db\n.example", 80)); err != nil {
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
			if _, err := r.Resolve(impatient, registry.TCP, hostAddr("db", 80)); !errors.Is(err, ErrUnresolved) {
				t.Errorf("the impatient one got %v; want %v", err, ErrUnresolved)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := r.Resolve(t.Context(), registry.TCP, hostAddr("db", 80)); err != nil {
				t.Errorf("the patient one got %v", err)
			}
		})
		wg.Wait()
	})
}

func TestOwnListenersAreLeftOutOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestResolver(&nameServer{addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")}})
		r.Own.Add(registry.ListenerID{Protocol: registry.TCP, Number: 80})
		got, err := r.Resolve(t.Context(), registry.TCP, hostAddr("db", 80))
		if want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
		if _, err := r.Resolve(t.Context(), registry.TCP, registry.Addr{IP: netip.MustParseAddrPort("127.0.0.1:80")}); !errors.Is(err, ErrOwnListener) {
			t.Errorf("got %v; want %v", err, ErrOwnListener)
		}
	})
}

func TestTheMemoryOfHostNamesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addrs := make([]netip.Addr, 100)
		for i := range addrs {
			addrs[i] = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		}
		r := newTestResolver(&nameServer{addrs: addrs})
		r.Lookup = func(context.Context, string, string) ([]netip.Addr, error) { return addrs, nil }
		for i := range maxHosts + 100 {
			got, err := r.Resolve(t.Context(), registry.TCP, hostAddr(fmt.Sprint(i), 80))
			if err != nil || len(got) != maxAddrs {
				t.Fatalf("%d addresses, %v", len(got), err)
			}
		}
		if n := len(r.hosts); n != maxHosts {
			t.Errorf("%d names are remembered; want %d", n, maxHosts)
		}
	})
}

// One datagram to such an address has many receivers, or is for this machine itself. Records cannot spell it out; a name can stand for it.
func TestANameOfAnAddressThatIsNotOneMachinesIsRefused(t *testing.T) {
	for _, ip := range []string{"224.0.0.1", "ff02::1", "ff02::1%lo", "255.255.255.255", "::ffff:255.255.255.255", "0.0.0.0", "::"} {
		synctest.Test(t, func(t *testing.T) {
			bad, good := netip.MustParseAddr(ip), netip.MustParseAddr("10.0.0.1")
			s := &nameServer{addrs: []netip.Addr{bad}}
			r := newTestResolver(s)
			for _, protocol := range []registry.Protocol{registry.TCP, registry.UDP} {
				addr := registry.Addr{Host: "x.example", IP: netip.AddrPortFrom(netip.Addr{}, 80)}
				if got, err := r.Resolve(t.Context(), protocol, addr); !errors.Is(err, registry.ErrNotAllowed) {
					t.Errorf("%v: a name that stands for %v: %v, %v; want it refused", protocol, bad, got, err)
				}
			}
			s.addrs = []netip.Addr{bad, good}
			time.Sleep(staleFor)
			got, err := r.Resolve(t.Context(), registry.UDP, registry.Addr{Host: "x.example", IP: netip.AddrPortFrom(netip.Addr{}, 80)})
			if want := []netip.AddrPort{netip.AddrPortFrom(good, 80)}; err != nil || !slices.Equal(got, want) {
				t.Errorf("beside %v: %v, %v; want %v", bad, got, err, want)
			}
		})
	}
}

// answering returns a resolver whose nameserver answers at once, what sets its answer and TTL (negative: it fails), and what counts look-ups.
func answering(t *testing.T) (r *Resolver, answer func(ttl time.Duration, addrs ...string), lookUps func() int) {
	var mu sync.Mutex
	n := 0
	var now []netip.Addr
	var ttl time.Duration
	r = newTestResolver(nil)
	t.Cleanup(r.Close)
	r.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		switch ctx.Value(ttlKey{}).(*answerTTL).note(ttl); {
		case ttl < 0:
			return nil, errors.New("no nameserver answers")
		case len(now) == 0:
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		}
		return now, nil
	}
	answer = func(lifetime time.Duration, addrs ...string) {
		mu.Lock()
		defer mu.Unlock()
		now, ttl = nil, lifetime
		for _, a := range addrs {
			now = append(now, netip.MustParseAddr(a))
		}
	}
	lookUps = func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
	return r, answer, lookUps
}

// resolved returns the addresses of db.example, as text.
func resolved(t *testing.T, r *Resolver) (texts []string) {
	t.Helper()
	addrs, err := r.Resolve(t.Context(), registry.UDP, hostAddr("db.example", 53))
	if err != nil {
		t.Error(err)
	}
	for _, a := range addrs {
		texts = append(texts, a.Addr().String())
	}
	return texts
}

// A client that comes after the TTL gets what the nameserver says now, though no other came meanwhile to have the answer refreshed.
func TestAnAnswerIsUsedForItsTTLAndNoLonger(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{0: leastKept, 30 * time.Second: 30 * time.Second, time.Hour: mostKept} {
		synctest.Test(t, func(t *testing.T) {
			r, answer, _ := answering(t)
			answer(ttl, "10.0.0.1")
			resolved(t, r)
			answer(ttl, "10.0.0.2")
			time.Sleep(want - time.Nanosecond)
			if got := resolved(t, r); !slices.Equal(got, []string{"10.0.0.1"}) {
				t.Errorf("TTL %v: just before its end a client was given %v", ttl, got)
			}
			synctest.Wait() // that client has had it refreshed
			answer(ttl, "10.0.0.3")
			time.Sleep(want)
			if got := resolved(t, r); !slices.Equal(got, []string{"10.0.0.3"}) {
				t.Errorf("TTL %v: after it a client was given %v", ttl, got)
			}
		})
	}
}

// While nameservers are silent, only those wait for a newer answer who come soon after it was asked for.
func TestSilentNameserversDelayOnlyClientsThatComeAsTheLookUpBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, answer, _ := answering(t)
		answer(0, "10.0.0.1")
		resolved(t, r)
		r.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		time.Sleep(leastKept)
		for _, want := range []time.Duration{graceTime, 0, 0} {
			began := time.Now()
			if got := resolved(t, r); !slices.Equal(got, []string{"10.0.0.1"}) || time.Since(began) != want {
				t.Errorf("a client was given %v after %v; want the old answer after %v", got, time.Since(began), want)
			}
		}
	})
}

// Who could not reach an address waits for a fresh answer, and so do the next clients. An answer of this moment is as good as another one.
func TestWhoCannotReachAnOldAnswerWaitsForTheFreshOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, answer, _ := answering(t)
		db := hostAddr("db.example", 53)
		old, fresh := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:53")}, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:53")}
		answer(time.Minute, "10.0.0.1")
		resolved(t, r)
		if r.Doubt(registry.UDP, db, old) {
			t.Error("a client is to ask again for a name that was looked up just now")
		}
		answer(time.Minute, "10.0.0.2")
		time.Sleep(unresolvedFor)
		if got := resolved(t, r); !slices.Equal(got, []string{"10.0.0.1"}) {
			t.Errorf("a client was given %v", got)
		}
		if !r.Doubt(registry.UDP, db, old) {
			t.Error("a client whose address failed is not to ask again")
		}
		if _, _, ok := r.Recall(registry.UDP, db); ok {
			t.Error("the next client is given the answer that failed")
		}
		if got := resolved(t, r); !slices.Equal(got, []string{"10.0.0.2"}) {
			t.Errorf("after the failure a client was given %v", got)
		}
		if !r.Doubt(registry.UDP, db, old) {
			t.Error("another client, which has tried the old address, is not told of the fresh one")
		}
		if r.Doubt(registry.UDP, db, fresh) || r.Doubt(registry.UDP, registry.Addr{IP: fresh[0]}, fresh) {
			t.Error("a client is to ask again, for a fresh answer or an address")
		}
	})
}

func TestAHeldAddressIsKnownToBeGoneWhenItsNameStandsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, answer, lookUps := answering(t)
		answer(10*time.Second, "10.0.0.1", "10.0.0.2")
		resolved(t, r)
		first, second := r.Hold("db.example", netip.MustParseAddr("10.0.0.1")), r.Hold("db.example", netip.MustParseAddr("::ffff:10.0.0.2"))
		moved := func(when string, wantFirst, wantSecond bool) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if one, two := first.Moved(), second.Moved(); one != wantFirst || two != wantSecond {
				t.Errorf("%s: moved %v and %v; want %v and %v", when, one, two, wantFirst, wantSecond)
			}
		}
		moved("nothing has changed", false, false)
		answer(10*time.Second, "10.0.0.2", "10.0.0.1")
		moved("the order has changed", false, false)
		answer(10*time.Second, "10.0.0.2", "10.0.0.3")
		moved("one address has gone", true, false)
		answer(-1)
		moved("no nameserver answers", true, false)
		answer(10 * time.Second)
		moved("the name is gone", true, true)
		first.Release()
		second.Release()
		second.Release()
		before := lookUps()
		time.Sleep(time.Hour)
		if n := lookUps() - before; n != 0 {
			t.Errorf("a name that no session holds was looked up %d times", n)
		}
		if none := r.Hold("", netip.Addr{}); none.Moved() {
			t.Error("an address without a name has moved")
		}
	})
}

// Nameservers that are silent leave look-ups to clients, however many names sessions hold.
func TestNamesThatSessionsHoldLeaveRoomForLookUpsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestResolver(nil)
		t.Cleanup(r.Close)
		r.Budget = NewBudget(20_000)
		r.Lookup = func(ctx context.Context, _, name string) ([]netip.Addr, error) {
			if name == "web.example" {
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for i := range 1000 {
			hold := r.Hold(fmt.Sprint("name-", i), netip.MustParseAddr("10.0.0.1"))
			defer hold.Release()
		}
		for range 10 {
			time.Sleep(10 * time.Second)
			began := time.Now()
			if _, err := r.Resolve(t.Context(), registry.TCP, hostAddr("web.example", 80)); err != nil || time.Since(began) != 0 {
				t.Fatalf("a client's look-up ended after %v, with %v", time.Since(began), err)
			}
			if got := r.Budget.Used.Load(); got > maxRefreshes*lookUpDescriptors {
				t.Fatalf("look-ups have %d descriptors", got)
			}
		}
	})
}

// Both families of a name count, and nameservers may give them in any order.
func TestTheOrderOfAnAnswerIsByFamilyAndThenSorted(t *testing.T) {
	var ips []netip.Addr
	for _, ip := range []string{"fd00::2", "10.0.0.3", "fd00::1", "::ffff:10.0.0.1", "10.0.0.3"} {
		ips = append(ips, netip.MustParseAddr(ip))
	}
	if got, want := fmt.Sprint(inOrder(ips)), "[fd00::1 fd00::2 10.0.0.1 10.0.0.3]"; got != want {
		t.Errorf("got %v; want %v", got, want)
	}
}
