package checks

import (
	"cmp"
	"container/heap"
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/internal/lograte"
	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/probe"
	"kubeproxy/registry"
)

// Settings say how endpoints are checked whose service does not say so itself.
type Settings struct {
	On        bool          // endpoints are checked unless the service says that they are not
	Interval  time.Duration // between two checks of one address
	Timeout   time.Duration // of one check; at most the interval
	Rise      int           // so many checks in a row have to pass before an address that fails is used again
	Fall      int           // so many in a row have to fail before an address is not used
	SlowStart time.Duration // in which the share of clients grows of an endpoint that passes again; 0: it has all of it at once
}

// Defaults returns the default settings. They check nothing.
func Defaults() Settings {
	return Settings{Interval: 5 * time.Second, Timeout: 2 * time.Second, Rise: 2, Fall: 3}
}

// A Guard knows what may be dialled, and the addresses of names.
type Guard interface {
	Recall(protocol registry.Protocol, addr registry.Addr) (addrs []netip.AddrPort, err error, ok bool)
	Resolve(ctx context.Context, protocol registry.Protocol, addr registry.Addr) ([]netip.AddrPort, error)
}

// Descriptors are those that checks may have, and clients.
type Descriptors interface {
	Take(n int) bool
	Release(n int)
}

// A Checker checks addresses. Any goroutine may call its methods.
type Checker struct {
	Settings
	guard       Guard
	descriptors Descriptors
	wake        chan struct{} // capacity 1: something is due sooner
	lookUps     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	targets map[Key]*Target
	queue   queue

	passed, failed atomic.Uint64
	changes        lograte.Limiter[change]

	// Of Run alone.
	underWay []*Target
	attempts []*probe.Attempt
	poller   probe.Poller
}

// New returns a checker. Zero settings are the default ones, but for On and SlowStart. Nothing is checked until Run.
func New(s Settings, guard Guard, descriptors Descriptors) *Checker {
	d := Defaults()
	s.Interval, s.Timeout = cmp.Or(s.Interval, d.Interval), cmp.Or(s.Timeout, d.Timeout)
	s.Rise, s.Fall = cmp.Or(s.Rise, d.Rise), cmp.Or(s.Fall, d.Fall)
	return &Checker{Settings: s, guard: guard, descriptors: descriptors, wake: make(chan struct{}, 1), targets: make(map[Key]*Target)}
}

// Wants returns how endpoints of a service are checked over a protocol; false: not at all.
func (c *Checker) Wants(protocol registry.Protocol, check *registry.Check) (Key, bool) {
	on := check.Wanted == registry.CheckOn || check.Wanted == registry.CheckUnsaid && c.On
	if !on || !probe.Supported || protocol == registry.UDP && check.Send == "" {
		return Key{}, false
	}
	k := Key{Question: probe.Question{Protocol: protocol}, Interval: cmp.Or(check.Interval, c.Interval)}
	k.Timeout = min(cmp.Or(check.Timeout, c.Timeout), k.Interval)
	if protocol == registry.UDP {
		k.Question.Send, k.Question.Expect = check.Send, check.Expect
	} else {
		k.Question.Path = check.Path
	}
	return k, true
}

// Watch has an address checked, and w told. What is known of it already w is told at once.
func (c *Checker) Watch(k Key, w Watcher) *Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.targets[k]
	if t == nil {
		t = &Target{Key: k, watchers: make(map[Watcher]struct{}), index: -1}
		t.state.Store(new(State))
		c.targets[k] = t
		// The first checks are spread over an interval, too: after a start all addresses are new.
		t.due = monotonic.Now() + rand.N(k.Interval)
		c.enqueueLocked(t)
	}
	t.watchers[w] = struct{}{}
	if t.State().Fails {
		w.Checked(k.Question.Protocol, false)
	}
	return t
}

// Unwatch ends the calls to w about a target. A target without a watcher is not checked.
func (c *Checker) Unwatch(t *Target, w Watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(t.watchers, w)
	if len(t.watchers) > 0 || c.targets[t.Key] != t {
		return
	}
	delete(c.targets, t.Key)
	if t.index >= 0 {
		heap.Remove(&c.queue, t.index)
	}
}

func (c *Checker) enqueueLocked(t *Target) {
	if heap.Push(&c.queue, t); t.index == 0 {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// tick is how often attempts that are under way are looked at, and the shortest time between two looks at what is due.
const tick = 20 * time.Millisecond

// Run checks until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer c.lookUps.Wait()
	defer cancel()
	defer c.giveUp()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := monotonic.Now()
		c.begin(ctx, now)
		c.proceed()
		timer.Reset(c.pause(now))
		select {
		case <-timer.C:
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}

// pause returns how long there is nothing to do.
func (c *Checker) pause(now time.Duration) time.Duration {
	if len(c.underWay) > 0 {
		return tick
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return time.Hour
	}
	return max(tick, c.queue[0].due-now)
}

// maxUnderWay bounds the attempts under way. Addresses that stay silent so delay the checks of others, and take no more descriptors.
const maxUnderWay = 512

// begin begins the checks that are due.
func (c *Checker) begin(ctx context.Context, now time.Duration) {
	for len(c.underWay) < maxUnderWay {
		t := c.next(now)
		if t == nil {
			return
		}
		c.ask(ctx, t, now)
	}
}

// ask begins a check.
func (c *Checker) ask(ctx context.Context, t *Target, now time.Duration) {
	addrs, err, known := c.guard.Recall(t.Question.Protocol, t.Addr)
	if !known { // the next check finds the answer
		c.lookUps.Go(func() { _, _ = c.guard.Resolve(ctx, t.Question.Protocol, t.Addr) })
	}
	if !known || err != nil || !c.descriptors.Take(1) { // clients are not sent there either; or it is this node that lacks something
		c.again(t)
		return
	}
	t.to, t.until = addrs[0], now+t.Timeout
	if t.attempt, err = probe.Begin(&t.Question, t.to); err != nil {
		c.finish(t, err)
		return
	}
	c.underWay = append(c.underWay, t)
}

// next takes a target out of the queue that is due; nil if none is.
func (c *Checker) next(now time.Duration) *Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 || c.queue[0].due > now {
		return nil
	}
	return heap.Pop(&c.queue).(*Target)
}

// again puts a target back into the queue, unless it has lost its last watcher. Intervals differ by up to a tenth, or all nodes would
// check an endpoint at one moment.
func (c *Checker) again(t *Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.targets[t.Key] == t {
		t.due = monotonic.Now() + t.Interval*9/10 + rand.N(t.Interval/10)
		c.enqueueLocked(t)
	}
}

// proceed goes on with the attempts that can, and ends those whose time is up.
func (c *Checker) proceed() {
	if len(c.underWay) == 0 {
		return
	}
	c.attempts = c.attempts[:0]
	for _, t := range c.underWay {
		c.attempts = append(c.attempts, &t.attempt)
	}
	ready := c.poller.Look(c.attempts)
	now, i := monotonic.Now(), -1
	c.underWay = slices.DeleteFunc(c.underWay, func(t *Target) bool {
		i++
		if ready(i) {
			if done, err := t.attempt.Proceed(&t.Question, t.to); done {
				c.finish(t, err)
				return true
			}
		}
		if now >= t.until {
			t.attempt.Close()
			c.finish(t, errSilent)
			return true
		}
		return false
	})
}

// giveUp ends all attempts.
func (c *Checker) giveUp() {
	for _, t := range c.underWay {
		t.attempt.Close()
		c.descriptors.Release(1)
	}
	c.underWay = nil
}
