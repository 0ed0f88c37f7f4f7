package checks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/glog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// everywhere allows every address, and counts the descriptors of checks.
type everywhere struct{ taken atomic.Int64 }

func (*everywhere) Recall(_ registry.Protocol, addr registry.Addr) ([]netip.AddrPort, error, bool) {
	return []netip.AddrPort{addr.IP}, nil, true
}
func (*everywhere) Resolve(context.Context, registry.Protocol, registry.Addr) ([]netip.AddrPort, error) {
	return nil, errors.New("there is no name to resolve")
}
func (g *everywhere) Take(n int) bool { g.taken.Add(int64(n)); return true }
func (g *everywhere) Release(n int)   { g.taken.Add(-int64(n)) }

// An ear is a watcher.
type ear struct {
	service string
	mu      sync.Mutex
	heard   []bool
	notes   int // calls of Noted
	well    int // calls of Passed
}

func (e *ear) Service() registry.Name { return registry.Name{Name: e.service} }

func (e *ear) Passed(registry.Protocol) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.well++
}

func (e *ear) Noted(registry.Protocol) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notes++
}

func (e *ear) Checked(_ registry.Protocol, passes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, passes)
}

func (e *ear) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprint(e.heard)
}

// quick are settings for tests with real sockets: on a busy machine, too, one of three checks is answered in time.
var quick = Settings{On: true, Interval: time.Second, Timeout: time.Second}

// running returns a checker that runs until the test ends.
func running(t *testing.T, s Settings) *Checker {
	t.Helper()
	guard := new(everywhere)
	c := New(s, guard, guard)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
		if n := guard.taken.Load(); n != 0 {
			t.Errorf("%d descriptors were not given back", n)
		}
		goleak.VerifyNone(t, goleak.IgnoreCurrent())
	})
	return c
}

// want returns the key of a TCP check of an address.
func want(c *Checker, addr registry.Addr, check registry.Check) Key {
	k, _ := c.Wants(registry.TCP, &registry.Terms{Checks: check})
	k.Addr = addr
	return k
}

func TestAnAddressThatIsWatchedTwiceIsCheckedOnce(t *testing.T) {
	c := New(quick, new(everywhere), new(everywhere))
	key := want(c, registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, registry.Check{})
	a, b := new(ear), new(ear)
	t1, t2 := c.Watch(key, a), c.Watch(key, b)
	if t1 != t2 || c.Counts().Targets != 1 || len(c.queue) != 1 {
		t.Error("there are two targets")
	}
	c.Unwatch(t1, a)
	if c.Counts().Targets != 1 {
		t.Error("the target is gone while it is watched")
	}
	c.Unwatch(t1, b)
	if c.Counts().Targets != 0 || len(c.queue) != 0 {
		t.Error("a target without a watcher is checked")
	}
}

// A check has less time than Linux takes to repeat a SYN (1 s, RFC 6298), so it repeats its question itself.
func TestOneLostPacketFailsNoCheck(t *testing.T) {
	full, relieve := proxytest.FullQueue(t)
	udp := 0
	answering := proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, _ netip.AddrPort) []byte {
		if udp++; udp == 1 {
			return nil // the question was lost
		}
		return payload
	})
	for _, c := range []struct {
		name     string
		protocol registry.Protocol
		addr     registry.Addr
		check    registry.Check
		mended   func() // after what was lost
		err      string
	}{
		{"TCP", registry.TCP, full, registry.Check{}, relieve, ""},
		{"TCP, all are lost", registry.TCP, proxytest.BlackHole(t), registry.Check{}, func() {}, errSilent.Error()},
		{"UDP", registry.UDP, answering.Addr, registry.Check{Send: "ping"}, func() {
			proxytest.Eventually(t, func() bool { return answering.Received() == 1 }, "the first question")
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			sockets := proxytest.Sockets(t)
			guard := new(everywhere)
			checker := New(Settings{On: true, Interval: 1800 * time.Millisecond}, guard, guard)
			key, _ := checker.Wants(c.protocol, &registry.Terms{Checks: c.check})
			key.Addr = c.addr
			target := checker.Watch(key, new(ear))
			began := monotonic.Now()
			checker.ask(t.Context(), checker.next(began+key.Interval), began)
			c.mended()
			target.repeat = 0 // half of the time is over
			proxytest.Eventually(t, func() bool { checker.proceed(); return len(checker.underWay) == 0 }, "the end of the check")
			if s := target.State(); s.Err != c.err {
				t.Errorf("the check ended with %q; want %q", s.Err, c.err)
			}
			if n, open := guard.taken.Load(), proxytest.Sockets(t); n != 0 || open > sockets {
				t.Errorf("%d descriptors were not given back, and %d sockets not closed", n, open-sockets)
			}
		})
	}
}

func TestAnAddressFailsAfterFallChecksAndPassesAfterRise(t *testing.T) {
	guard := new(everywhere)
	c := New(Settings{On: true, Fall: 3, Rise: 2}, guard, guard)
	heard := new(ear)
	target := c.Watch(want(c, registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, registry.Check{}), heard)
	silent := errors.New("silent")
	for i, step := range []struct {
		err  error
		want string
	}{
		{silent, "[]"}, {silent, "[]"}, {nil, "[]"}, // in a row
		{silent, "[]"}, {silent, "[]"}, {silent, "[false]"}, {silent, "[false]"},
		{os.NewSyscallError("socket", syscall.EMFILE), "[false]"}, // which says nothing about the address
		{nil, "[false]"}, {silent, "[false]"}, {nil, "[false]"}, {nil, "[false true]"}, {nil, "[false true]"},
	} {
		heap := c.next(monotonic.Now() + time.Hour)
		if heap != target {
			t.Fatal("the target is not due")
		}
		c.finish(target, step.err)
		if got := heard.String(); got != step.want {
			t.Fatalf("after result %d the watcher has heard %v; want %v", i, got, step.want)
		}
	}
	if s := target.State(); s.Fails || !s.Known || s.Err != "" || s.Since.IsZero() {
		t.Errorf("the state is %+v", s)
	}
	if want := 6; heard.notes != want { // the first one, 2 to 3, 3 to 4, 8 to 9, 9 to 10, 10 to 11
		t.Errorf("the watcher was told %d times that a result differs from the one before; want %d", heard.notes, want)
	}
	if want := 2; heard.well != want { // 2, and the last: the others passed while it failed, or were the Rise
		t.Errorf("the watcher was told %d times that a check passed of an address that does not fail; want %d", heard.well, want)
	}
}

func TestACheckThatThisNodeLacksTheMeansForSaysNothingAboutTheAddress(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC} {
		c := New(Settings{On: true, Fall: 1}, new(everywhere), new(everywhere))
		heard := new(ear)
		target := c.Watch(want(c, registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, registry.Check{}), heard)
		if c.next(monotonic.Now()+time.Hour) != target {
			t.Fatal("the target is not due")
		}
		c.finish(target, os.NewSyscallError("connect", errno))
		if s := target.State(); s.Known || s.Fails || heard.String() != "[]" || c.Counts().Failed > 0 {
			t.Errorf("%v: the state is %+v, and the watcher has heard %v", errno, s, heard)
		}
	}
}

// The line would say that no client is sent there, of an address that passes by its new numbers or that no service has.
func TestACheckOfATargetThatWasGivenUpMeanwhileIsNotLogged(t *testing.T) {
	for name, giveUp := range map[string]func(*Checker, *Target, Watcher){
		"the record drops the endpoint": (*Checker).Unwatch,
		"the interval changes": func(c *Checker, t *Target, w Watcher) {
			next := t.Key
			next.Interval *= 2
			c.Rewatch(t, next, w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Settings{On: true, Fall: 3}, new(everywhere), new(everywhere))
			heard := new(ear)
			target := c.Watch(want(c, registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, registry.Check{}), heard)
			before := glog.Stats.Warning.Lines()
			for i := range target.Fall {
				if c.next(monotonic.Now()+time.Hour) != target {
					t.Fatal("the target is not due")
				}
				if i == target.Fall-1 {
					giveUp(c, target, heard)
				}
				c.finish(target, errSilent)
			}
			if n := glog.Stats.Warning.Lines() - before; n != 0 || c.Counts().Failing != 0 {
				t.Errorf("%d lines are logged, and %d targets fail", n, c.Counts().Failing)
			}
			if _, ok := c.changes.Allow(change{target.Addr, true}); !ok {
				t.Error("a line about the address would be held back")
			}
		})
	}
}

func TestAnEndpointThatAcceptsAndNeverAnswersFailsItsHTTPCheck(t *testing.T) {
	c := running(t, quick)
	hung := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Hold)
	byHTTP, byTCP := new(ear), new(ear)
	target := c.Watch(want(c, hung.Addr, registry.Check{Path: "/"}), byHTTP)
	other := c.Watch(want(c, hung.Addr, registry.Check{}), byTCP)
	proxytest.Eventually(t, func() bool { return target.State().Fails && other.State().Known }, "a check that fails, and one that passes")
	if s := target.State(); s.Err != errSilent.Error() || other.State().Fails {
		t.Errorf("by HTTP it fails by %q, and by a connection by %q", s.Err, other.State().Err)
	}
	late := new(ear)
	c.Watch(target.Key, late)
	if got := late.String(); got != "[false]" {
		t.Errorf("who comes late hears %v", got)
	}
}

func TestAnAddressThatHangsAtAnyMomentFailsFallIntervalsLater(t *testing.T) {
	for _, s := range []Settings{{On: true}, {On: true, Interval: time.Second}, {On: true, Fall: 2}, {On: true, Fall: 7, Timeout: 100 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			guard := new(everywhere)
			c := New(s, guard, guard)
			key := want(c, registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, registry.Check{})
			ctx, stop := context.WithCancel(t.Context())
			var hangs atomic.Bool
			c.Ask = func(k *Key) error {
				if hangs.Load() {
					time.Sleep(k.Timeout)
					return errSilent
				}
				return nil
			}
			target := c.Watch(key, new(ear))
			done := make(chan struct{})
			go func() { defer close(done); c.Run(ctx) }()
			most := time.Duration(0)
			for range 200 {
				for hangs.Store(false); target.State().Fails || target.State().Run > 0; time.Sleep(c.Interval) {
				}
				time.Sleep(2*c.Interval + rand.N(c.Interval))
				hangs.Store(true)
				began := time.Now()
				for !target.State().Fails {
					time.Sleep(tick / 2)
				}
				most = max(most, time.Since(began))
			}
			stop()
			<-done
			bar := time.Duration(c.Fall)*c.Interval + time.Duration(c.Fall+1)*tick
			if most > bar || most < bar*3/4 {
				t.Errorf("%+v: it failed after %v at most; want %v or a little less", c.Settings, most, bar)
			}
		})
	}
}

// named gives each name these addresses.
type named struct {
	everywhere
	addrs []netip.AddrPort
}

func (n *named) Recall(registry.Protocol, registry.Addr) ([]netip.AddrPort, error, bool) {
	return n.addrs, nil, true
}

func TestANamePassesWhileOneOfItsAddressesAnswers(t *testing.T) {
	well := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Hold)
	guard := &named{addrs: []netip.AddrPort{proxytest.Refusing(t).IP, proxytest.Refusing(t).IP, well.Addr.IP}}
	c := New(Settings{On: true, Fall: 3, Rise: 2}, guard, guard)
	heard := new(ear)
	target := c.Watch(want(c, registry.Addr{Host: "web.example", IP: netip.AddrPortFrom(netip.Addr{}, 80)}, registry.Check{}), heard)
	check := func() {
		t.Helper()
		c.ask(t.Context(), c.next(monotonic.Now()+time.Hour), monotonic.Now())
		proxytest.Eventually(t, func() bool { c.proceed(); return len(c.underWay) == 0 }, "the check to end")
	}
	for range 10 {
		check()
	}
	if got := heard.String(); got != "[]" || c.Counts().Passed != 8 {
		t.Errorf("the watcher has heard %s, and %d checks have passed; want all but the first two", got, c.Counts().Passed)
	}
	well.Close()
	for range 4 {
		check()
	}
	if got := heard.String(); got != "[false]" || !target.State().Fails {
		t.Errorf("when none answers, the watcher has heard %s", got)
	}
}

// forgetful has to look names up for each check: the TTL of their answers is shorter than the interval.
type forgetful struct {
	named
	lookedUp atomic.Int64 // when, by the monotonic clock
}

func (f *forgetful) Recall(registry.Protocol, registry.Addr) ([]netip.AddrPort, error, bool) {
	at := time.Duration(f.lookedUp.Load())
	return f.addrs, nil, at != 0 && monotonic.Now()-at < quick.Interval/2
}

func (f *forgetful) Resolve(context.Context, registry.Protocol, registry.Addr) ([]netip.AddrPort, error) {
	f.lookedUp.Store(int64(monotonic.Now()))
	return f.addrs, nil
}

func TestANameThatHasToBeLookedUpIsCheckedOnceItIs(t *testing.T) {
	guard := &forgetful{named: named{addrs: []netip.AddrPort{proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Hold).Addr.IP}}}
	c := New(quick, guard, guard)
	c.Watch(want(c, registry.Addr{Host: "web.example", IP: netip.AddrPortFrom(netip.Addr{}, 80)}, registry.Check{}), new(ear))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	proxytest.Eventually(t, func() bool { return c.Counts().Passed >= 3 }, "checks that pass")
	stop()
	<-ended
	if n := guard.taken.Load(); n != 0 {
		t.Errorf("%d descriptors were not given back", n)
	}
}

func TestAnAddressThatIsNotAllowedIsNotAsked(t *testing.T) {
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Hold)
	guard := forbidding{asked: make(chan struct{}, 100)}
	c := New(quick, guard, guard)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	target := c.Watch(want(c, server.Addr, registry.Check{}), new(ear))
	go c.Run(ctx)
	for range 2 {
		proxytest.Receive(t, guard.asked, "the guard to be asked")
	}
	if server.Accepted() != 0 || target.State().Known {
		t.Errorf("%d connections, state %+v", server.Accepted(), target.State())
	}
}

type forbidding struct {
	everywhereElse
	asked chan struct{}
}
type everywhereElse = *everywhere

func (g forbidding) Take(int) bool { panic("a check that is not allowed took a descriptor") }
func (g forbidding) Release(int)   {}
func (g forbidding) Recall(registry.Protocol, registry.Addr) ([]netip.AddrPort, error, bool) {
	select {
	case g.asked <- struct{}{}:
	default:
	}
	return nil, registry.ErrNotAllowed, true
}

// BenchmarkCheck measures what one check of a near address costs the goroutine that makes all of them, in ticks of 40 as those of 10,000
// addresses every 5 s. The last column is what these take of one processor.
func BenchmarkCheck(b *testing.B) {
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				conn.Close()
			}
		}
	}()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	guard := new(everywhere)
	c := New(Settings{Timeout: time.Minute, Interval: 5 * time.Second}, guard, guard)
	for i := range 10000 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), port)
		c.Watch(Key{Addr: registry.Addr{IP: at}, Question: Question{}, Interval: c.Interval, Timeout: c.Timeout}, new(ear))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportAllocs()
	began, n := cpuOfThread(b), 0
	for ; b.Loop(); n += perTick {
		for len(c.queue) > 10000-perTick {
			c.ask(b.Context(), c.next(c.queue[0].at), monotonic.Now()) // time flies
		}
		for len(c.underWay) > 0 {
			c.proceed()
		}
	}
	each := (cpuOfThread(b) - began) / time.Duration(n)
	b.ReportMetric(float64(each.Nanoseconds()), "cpu-ns/check")
	b.ReportMetric(100*(each*10000).Seconds()/5, "%processor")
	if c.Counts().Failing > 0 {
		b.Errorf("%d addresses fail", c.Counts().Failing)
	}
}

// perTick is how many checks begin in one tick.
const perTick = 40

// cpuOfThread returns the processor time of this thread.
func cpuOfThread(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestAServiceSaysHowManyChecksCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := new(everywhere)
		c := New(Settings{On: true, Interval: time.Second, Fall: 3, Rise: 2}, guard, guard)
		at := registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}
		var asked atomic.Int64
		var fails atomic.Bool
		c.Ask = func(k *Key) error {
			if k.Fall != 1 {
				return nil
			}
			if asked.Add(1); fails.Load() {
				return errSilent
			}
			return nil
		}
		one, other := c.Watch(want(c, at, registry.Check{Fall: 1, Rise: 4}), new(ear)), c.Watch(want(c, at, registry.Check{}), new(ear))
		if one == other || other.Fall != 3 || other.Rise != 2 {
			t.Errorf("a service that does not say has %d and %d", other.Fall, other.Rise)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.Run(ctx) }()
		until := func(failed bool) (checks int64) {
			fails.Store(failed)
			from := asked.Load()
			for one.State().Fails != failed {
				time.Sleep(tick)
			}
			return asked.Load() - from
		}
		time.Sleep(3 * c.Interval)
		if n := until(true); n != 1 {
			t.Errorf("it fails after %d checks; want 1", n)
		}
		if n := until(false); n != 4 {
			t.Errorf("it passes after %d checks; want 4", n)
		}
		stop()
		<-done
	})
}
