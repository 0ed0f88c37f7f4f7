package checks

import (
	"cmp"
	"container/heap"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"kubeproxy/internal/lograte"
	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// New returns a checker. Zero settings are the default ones, but for On and SlowStart. Nothing is checked until Run.
func New(s Settings, guard Guard, descriptors Descriptors) *Checker {
	d := Defaults()
	s.Interval, s.Timeout = cmp.Or(s.Interval, d.Interval), cmp.Or(s.Timeout, d.Timeout)
	s.Rise, s.Fall = cmp.Or(s.Rise, d.Rise), cmp.Or(s.Fall, d.Fall)
	return &Checker{Settings: s, guard: guard, descriptors: descriptors, wake: make(chan struct{}, 1), targets: make(map[Key]*Target),
		shares:   shares{free: maxUnderWay, of: make(map[registry.Name]*share)},
		overdues: lograte.Limiter[struct{}]{Lines: 1}, inTime: lograte.Limiter[struct{}]{Lines: 1}}
}

// MaxTimeout bounds the time for an answer. An address that hangs has a place for as long.
const MaxTimeout = 30 * time.Second

// Wants returns how endpoints of a service are checked over a protocol, by its terms; false: not at all.
func (c *Checker) Wants(protocol registry.Protocol, terms *registry.Terms) (Key, bool) {
	check := &terms.Checks
	on := check.Wanted == registry.CheckOn || check.Wanted == registry.CheckUnsaid && c.On
	if !on || !Supported || protocol == registry.UDP && check.Send == "" {
		return Key{}, false
	}
	k := Key{Question: Question{Protocol: protocol, Port: check.Port, Header: terms.ProxyHeader}, Interval: cmp.Or(check.Interval, c.Interval)}
	k.Fall, k.Rise = cmp.Or(check.Fall, c.Fall), cmp.Or(check.Rise, c.Rise)
	k.Timeout = min(cmp.Or(check.Timeout, c.Timeout), k.Interval/2, MaxTimeout)
	if protocol == registry.UDP {
		k.Question.Send, k.Question.Expect = check.Send, check.Expect
	} else {
		k.Question.Path, k.Question.Method, k.Question.Host, k.Question.Status = check.Path, check.Method, check.Host, check.Status
		k.Question.TLS = check.TLS
	}
	return k, true
}

// Watch has an address checked, and w told. What is known of it already w is told at once.
func (c *Checker) Watch(k Key, w Watcher) *Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.targetLocked(k)
	t.watchers[w] = struct{}{}
	if t.State().Fails {
		w.Checked(k.Question.Protocol, false)
	}
	return t
}

// Rewatch has an address that w watches asked the same in other intervals, or judged by other numbers of results. It goes on from what was found, unless
// others watch it in this way already: then w is told what that has found.
func (c *Checker) Rewatch(t *Target, k Key, w Watcher) *Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.targetLocked(k)
	if s := t.State(); s.Known && !next.State().Known {
		c.adoptLocked(next, s)
	}
	next.watchers[w] = struct{}{}
	c.unwatchLocked(t, w)
	w.Checked(k.Question.Protocol, !next.State().Fails)
	return next
}

// targetLocked returns the target with a key. One that is new has no watcher yet.
func (c *Checker) targetLocked(k Key) *Target {
	t := c.targets[k]
	if t == nil {
		now := monotonic.Now()
		t = &Target{Key: k, watchers: make(map[Watcher]struct{})}
		t.state.Store(new(State))
		c.targets[k] = t
		// The first checks are spread over an interval, too: after a start all addresses are new.
		t.due = entry{of: t, at: now + rand.N(k.Interval)}
		t.expires = entry{of: t, at: now + t.bound()}
		heap.Push(&c.expiring, &t.expires)
		c.enqueueLocked(t)
	}
	return t
}

// Unwatch ends the calls to w about a target. A target without a watcher is not checked.
func (c *Checker) Unwatch(t *Target, w Watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwatchLocked(t, w)
}

func (c *Checker) unwatchLocked(t *Target, w Watcher) {
	delete(t.watchers, w)
	if len(t.watchers) > 0 || c.targets[t.Key] != t {
		return
	}
	delete(c.targets, t.Key)
	if t.expires.index >= 0 {
		heap.Remove(&c.expiring, t.expires.index)
	}
	switch {
	case t.due.index < 0: // it is being asked
	case t.share != nil:
		c.shares.remove(t)
	default:
		heap.Remove(&c.queue, t.due.index)
	}
}

func (c *Checker) enqueueLocked(t *Target) {
	if heap.Push(&c.queue, &t.due); t.due.index == 0 {
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
		c.expire(now)
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
	next := now + time.Hour
	for _, q := range []queue{c.queue, c.expiring} { // the first is empty while all targets are being looked up
		if len(q) > 0 {
			next = min(next, q[0].at)
		}
	}
	return max(tick, next-now)
}

// begin begins the checks that are due, as far as there are places.
func (c *Checker) begin(ctx context.Context, now time.Duration) {
	for t := c.next(now); t != nil; t = c.next(now) {
		c.ask(ctx, t, now)
	}
}

// ask begins a check. Of a name with several addresses it asks one: as long as that passes, the same, and after a failure the next. So the
// endpoint passes while one of them answers, as clients find that one too.
func (c *Checker) ask(ctx context.Context, t *Target, now time.Duration) {
	t.begun = now
	addrs, err, known := c.guard.Recall(t.Question.Protocol, t.Addr)
	if !known && !t.lookedUp {
		c.lookUp(ctx, t)
		return
	}
	t.lookedUp = false
	if !known || err != nil { // clients are not sent there either
		c.again(t, true)
		return
	}
	if !c.descriptors.Take(1) { // it is this node that lacks something
		c.again(t, false)
		return
	}
	t.descriptors = 1
	if c.Ask != nil {
		c.finish(t, c.Ask(&t.Key))
		return
	}
	t.to, t.until = addrs[t.turn%len(addrs)], now+t.Timeout
	if t.attempt, err = Begin(&t.Question, t.to, c.tlsConfigOf(t)); err != nil {
		c.finish(t, err)
		return
	}
	t.repeat = t.until - t.Timeout/2
	c.underWay = append(c.underWay, t)
}

// lookUp waits for the name of a target beside the checker, and has the target asked then. Meanwhile it has no place.
func (c *Checker) lookUp(ctx context.Context, t *Target) {
	t.lookedUp = true
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shares.leave(t)
	if c.targets[t.Key] != t {
		return
	}
	c.renewLocked(t)
	c.lookUps.Go(func() {
		_, _ = c.guard.Resolve(ctx, t.Question.Protocol, t.Addr) // the check recalls it
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.targets[t.Key] == t {
			t.due.at = monotonic.Now()
			c.enqueueLocked(t)
		}
	})
}

// next gives a place to a target that is due; nil if none is, or no service may have another place.
func (c *Checker) next(now time.Duration) *Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && c.queue[0].at <= now {
		c.shares.add(heap.Pop(&c.queue).(*entry).of)
	}
	return c.shares.next()
}

// again puts a target back into the queue, unless it has lost its last watcher. told says whether its check had a result, be it that
// there is no address to ask. An interval is the time from the beginning of a check to
// that of the next. Intervals differ by up to a tenth, or all nodes would check an endpoint at one moment.
//
// Of an address that passes, and did not the last time, they are so much shorter that there is room for the timeout of the last check: so an address
// that hangs fails Fall intervals later at most.
func (c *Checker) again(t *Target, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shares.leave(t)
	if c.targets[t.Key] == t {
		if told {
			c.renewLocked(t)
		}
		interval := t.Interval
		if s := t.State(); !s.Fails && s.Run > 0 {
			interval = max(interval-t.Timeout/time.Duration(max(t.Fall-1, 1)), interval/2)
		}
		t.due.at = max(monotonic.Now(), t.begun+interval*9/10+rand.N(interval/10))
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
		if now >= t.repeat {
			c.repeat(t)
		}
		return false
	})
}

// repeat asks a target once more, after half of its time: one lost packet fails no check.
func (c *Checker) repeat(t *Target) {
	t.repeat = t.until
	if !c.descriptors.Take(1) {
		return
	}
	if t.attempt.Repeat(&t.Question, t.to) {
		t.descriptors++
	} else {
		c.descriptors.Release(1)
	}
}

// giveUp ends all attempts.
func (c *Checker) giveUp() {
	for _, t := range c.underWay {
		t.attempt.Close()
		c.descriptors.Release(t.descriptors)
	}
	c.underWay = nil
}
