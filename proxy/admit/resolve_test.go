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
		time.Sleep(freshFor - time.Nanosecond)
		ask(0)
		if s.lookups != 1 {
			t.Errorf("looked up %d times; want once", s.lookups)
		}
		time.Sleep(time.Nanosecond)
		ask(0)
		ask(0)
		lookedUp(2)
		time.Sleep(promptFor) // an answer this old waits a moment for a better one
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
		time.Sleep(freshFor)
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

// A lookUpConn is a connection to a nameserver, whose end a test waits for.
type lookUpConn struct {
	*net.UDPConn
	closed chan<- struct{}
}

func (c *lookUpConn) Close() error {
	c.closed <- struct{}{}
	return c.UDPConn.Close()
}

// TestALookUpLeavesNoSocketsBehind, although the nameserver has time left to answer: package net would keep them for five seconds.
func TestALookUpLeavesNoSocketsBehind(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	opened, closed := make(chan struct{}, 10), make(chan struct{}, 10)
	r := nameservers(func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "udp", silent.LocalAddr().String())
		if err != nil {
			return nil, err
		}
		opened <- struct{}{}
		return &lookUpConn{c.(*net.UDPConn), closed}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	const families = 2
	go func() {
		for range families {
			<-opened
		}
		cancel()
	}()
	if _, err := r.LookupNetIP(ctx, "ip", "web.hostile.test"); err == nil {
		t.Error("a nameserver that is silent has answered")
	}
	for range families {
		select {
		case <-closed:
		case <-time.After(3 * time.Second):
			t.Fatal("a socket is still open")
		}
	}
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
		time.Sleep(2 * promptFor)
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
		r.Own.Add(registry.NodePort{Protocol: registry.TCP, Number: 80})
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
