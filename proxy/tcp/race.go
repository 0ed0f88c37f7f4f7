package tcp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Race connects one TCP client to the endpoint that answers first: it says which endpoint to dial, and when (RFC 8305 has
// browsers do the same). It opens nothing and waits for nothing. The engine reports each event, asks [Race.Next] for steps until there
// is nothing more to do, and asks again after the next event, or when the time of the [Await] has come.
//
//	event                                   step
//	-------------------------------------------------------------------------------------------------------
//	the race begins                         dial the endpoint whose turn it is
//	a dial fails                            at once: dial the next address of the endpoint; after its last
//	                                        one, the next endpoint
//	no answer for engine.Stagger            beside what is under way: dial the next address of the endpoint,
//	                                        and the next endpoint
//	an endpoint is silent for its time      stop its dials; then as when they fail
//	the endpoint is a name                  look it up, unless the answer is known; then dial its first
//	                                        address
//	no address of a name answers            look it up once more if it may stand for others by now, and dial
//	                                        those
//	an endpoint answers                     none: the engine closes what else it has dialled
//	nothing is left, nor under way          give up; but a client that may be offered an endpoint later looks again
//	                                        with each change of the endpoints, until its time is up
//	the port of a client that waits has     give up; the engine asks [Race.NewOwner]
//	another claim as its owner
//
// What holds at each moment:
//
//   - An attempt is at one endpoint. Each endpoint is attempted once, and each of its addresses is dialled once. A client that waits may
//     attempt an endpoint again once that is well.
//   - The dials of an attempt last DialTimeout at most, or what the service says, and end DialTotalTimeout after the race began. A look-up has time of its own
//     (admit.LookUpTimeout), and the dials that wait for it have all of DialTimeout.
//   - The oldest attempt under way uses the descriptor that the client came with. Each dial or look-up beside it takes one from the
//     budget, and returns it when it ends, but none of the last eighth (admit.Budget.TakeSpare). Without a descriptor, nothing is begun beside
//     what is under way.
//   - MayAttempt limits each attempt but the first, and each address of an attempt but its first one.
//   - An attempt that fails ejects its endpoint, unless this proxy, the record or DNS is to blame. When another endpoint answers, an endpoint is
//     ejected only if it was silent for engine.Stagger.
//   - At most one dial wins, and the client's bytes go to its connection alone.
//
// The zero value is ready for Begin. A Race is not safe for concurrent use.
type Race struct {
	search   search
	client   *Connection                   // whose race it is; see follow.go
	owner    *atomic.Pointer[engine.Claim] // of its port; nil: it does not change
	config   *RaceConfig
	attempts []attempt     // under way, in the order in which they began
	dials    []dial        // under way, of all attempts
	paid     int           // descriptors of the budget that are taken
	next     time.Duration // when another endpoint is due
	began    time.Duration
	lastID   uint32
}

// A RaceConfig is what all races of an engine, or of one of its loops, have in common. It does not change while there are races.
type RaceConfig struct {
	Limits     *engine.Config  // of which a race heeds DialTimeout, DialTotalTimeout and MaxDialsPerEndpoint
	Resolver   *admit.Resolver // of names, with the budget of descriptors
	MayAttempt func() bool     // reports whether there is room for one more attempt now, and counts it; nil: always
}

// An attempt is one at an endpoint: its name is looked up, or addresses are dialled.
type attempt struct {
	endpoint *rotation.Endpoint
	began    time.Duration    // when its first address was dialled; until then, when its name was looked up
	deadline time.Duration    // of its dials
	known    []netip.AddrPort // the addresses of its name, as first answered
	left     []netip.AddrPort // addresses that are not dialled yet
	next     time.Duration    // when the first of them is due beside the others
	failed   time.Duration    // when a dial failed last
	err      error            // why, or why there is no address to dial
	dials    int              // under way
	lookUp   uint32           // under way; 0: none
	dialled  bool             // an address was
	again    bool             // the name was looked up once more
}

// A dial is one of an address.
type dial struct {
	id       uint32
	to       netip.AddrPort
	endpoint *rotation.Endpoint
}

// A Step is what the engine has to do.
type Step struct {
	Do Action
	ID uint32             // of the dial, or the look-up: events about it bear it
	To netip.AddrPort     // Dial: that address
	Of *rotation.Endpoint // LookUp: whose name
	At time.Duration      // Await: then

	News context.Context // Await: or when it ends; nil: never
}

// An Action is a kind of step.
type Action uint8

const (
	Await    Action = iota // nothing before the next event, or before a time, or before there is news of the endpoints
	Dial                   // dial an address; the end is reported by Connected or Failed
	LookUp                 // look up a name; the end is reported by Resolved or Failed
	Stop                   // end a dial, of which nothing is to be reported any more
	Postpone               // ask again when there is room for an attempt
	GiveUp                 // no endpoint answers, and nothing is under way
)

// Begin begins the race for a client that is to have one of the endpoints of a choice. The race keeps the memory of the one before.
func (r *Race) Begin(cfg *RaceConfig, c rotation.Choice, now time.Duration) {
	attempt, total := cfg.Limits.DialTimes(c.Connect)
	r.search = newSearch(c, attempt, total, int64(cfg.Limits.MaxDialsPerEndpoint), now)
	r.config, r.next, r.began = cfg, now, now
}

// Next returns the next step. The engine does it and asks again at once, except after Await, Postpone and GiveUp.
func (r *Race) Next(now time.Duration) Step {
	for {
		for i := 0; i < len(r.attempts); {
			a := &r.attempts[i]
			step := r.proceed(a, now)
			switch {
			case step.Do != Await:
				return step
			case a.hasFailed():
				r.search.missed(a.endpoint, a.failed-a.began, a.err)
				r.attempts, r.next = slices.Delete(r.attempts, i, i+1), now
			default:
				i++
			}
		}
		step, begun := r.attemptNext(now)
		if step.Do != Await {
			return step
		}
		if !begun {
			break
		}
	}
	r.repay()
	switch {
	case len(r.attempts) > 0:
		return Step{At: r.due()}
	case r.search.isUnserved() && now < r.until():
		return r.lookAgain(now)
	}
	return Step{Do: GiveUp}
}

// hasFailed reports whether nothing of a is under way, or left to dial.
func (a *attempt) hasFailed() bool { return a.lookUp == 0 && a.dials == 0 && len(a.left) == 0 }

// lookAgain returns the step of a client that was offered no endpoint, and may wait for one: news first, so that none is missed.
func (r *Race) lookAgain(now time.Duration) Step {
	news := r.search.choice.News()
	if r.search.choice.Lifetime.IsOver() || r.hasNewOwner() { // since it was asked, so the news of that may have been before
		return Step{Do: GiveUp}
	}
	if r.search.short { // of descriptors there is no news
		r.search.short = false
		return Step{At: min(r.until(), now+engine.Stagger), News: news}
	}
	r.search.beginAgain(now)
	switch step, begun := r.attemptNext(now); {
	case begun && step.Do == Await:
		return r.Next(now)
	case step.Do != Await:
		return step
	}
	at := min(r.until(), r.search.choice.Returns())
	if r.search.limited { // of dials that end there is no news
		at = min(at, now+engine.Stagger)
	}
	return Step{At: at, News: news}
}

// until is when a client that is offered no endpoint has waited for long enough.
func (r *Race) until() time.Duration {
	return r.began + r.search.choice.WaitTime(r.config.Limits.WaitAtLimit)
}

// proceed returns the next step of an attempt.
func (r *Race) proceed(a *attempt, now time.Duration) Step {
	if a.lookUp != 0 {
		return Step{}
	}
	if a.dialled && now >= a.deadline {
		a.left = nil
		if i := slices.IndexFunc(r.dials, func(d dial) bool { return d.endpoint == a.endpoint }); i >= 0 {
			id := r.dials[i].id
			r.failed(i, now, syscall.ETIMEDOUT)
			return Step{Do: Stop, ID: id}
		}
	}
	switch {
	case len(a.left) > 0 && (a.dials == 0 || now >= a.next):
		return r.dialNext(a, now)
	case len(a.left) == 0 && a.dials == 0 && a.dialled && !a.again && r.config.Resolver.Doubt(registry.TCP, a.endpoint.Addr, a.known):
		a.again = true
		return r.lookUp(a)
	}
	return Step{}
}

// attemptNext begins an attempt at the next endpoint if that is due, and returns its first step. It reports whether an attempt has begun; one
// without a step may have failed already.
func (r *Race) attemptNext(now time.Duration) (step Step, begun bool) {
	if r.search.over || len(r.attempts) > 0 && now < r.next {
		return Step{}, false
	}
	if !r.pay() {
		r.next = now + engine.Stagger
		return Step{}, false
	}
	if r.search.choice.Offers() > 0 && !r.mayAttempt() {
		return Step{Do: Postpone}, false
	}
	r.next = now + engine.Stagger
	e, timeout, ok := r.search.next(now)
	if !ok {
		return Step{}, false
	}
	r.attempts = append(r.attempts, attempt{endpoint: e, began: now, failed: now, deadline: now + timeout})
	a := &r.attempts[len(r.attempts)-1]
	if e.Addr.Host == "" {
		to := netip.AddrPortFrom(e.Addr.IP.Addr().Unmap(), e.Addr.IP.Port())
		if a.err = r.config.Resolver.Refuse(registry.TCP, to); a.err != nil {
			return Step{}, true
		}
		return r.dial(a, to, now), true
	}
	addrs, err, known := r.config.Resolver.Recall(registry.TCP, e.Addr)
	if !known {
		return r.lookUp(a), true
	}
	a.err, a.left = err, r.search.choice.Arrange(e, addrs)
	a.known = a.left
	return r.proceed(a, now), true
}

// dialNext dials the first of the addresses that are left of an endpoint.
func (r *Race) dialNext(a *attempt, now time.Duration) Step {
	if a.dials > 0 && !r.pay() {
		a.next = now + engine.Stagger
		return Step{}
	}
	if a.dialled && !r.mayAttempt() {
		return Step{Do: Postpone}
	}
	to := a.left[0]
	a.left = a.left[1:]
	return r.dial(a, to, now)
}

func (r *Race) dial(a *attempt, to netip.AddrPort, now time.Duration) Step {
	if !a.dialled {
		a.began, a.dialled = now, true
	}
	a.dials++
	a.next = now + engine.Stagger
	r.lastID++
	r.dials = append(r.dials, dial{r.lastID, to, a.endpoint})
	return Step{Do: Dial, ID: r.lastID, To: to}
}

func (r *Race) lookUp(a *attempt) Step {
	r.lastID++
	a.lookUp = r.lastID
	return Step{Do: LookUp, ID: r.lastID, Of: a.endpoint}
}

// pay takes a descriptor for one more dial or look-up, and reports whether there is one.
func (r *Race) pay() bool {
	if r.underWay() <= r.paid {
		return true
	}
	if !r.config.Resolver.Budget.TakeSpare(1) {
		return false
	}
	r.paid++
	return true
}

// repay returns the descriptors of what has ended.
func (r *Race) repay() {
	if surplus := r.paid - max(0, r.underWay()-1); surplus > 0 {
		r.paid -= surplus
		r.config.Resolver.Budget.Release(surplus)
	}
}

// underWay counts the dials and look-ups that have, or are about to have, a descriptor.
func (r *Race) underWay() (n int) {
	for i := range r.attempts {
		n += max(1, r.attempts[i].dials)
	}
	return n
}

// mayAttempt reports whether the engine has room for one more attempt. Meanwhile the race keeps no descriptor that it does not use.
func (r *Race) mayAttempt() bool {
	if may := r.config.MayAttempt; may == nil || may() {
		return true
	}
	r.repay()
	return false
}

// due is when Next has something to do even if nothing happens.
func (r *Race) due() time.Duration {
	at := monotonic.Never
	if !r.search.over {
		at = r.next
	}
	for i := range r.attempts {
		a := &r.attempts[i]
		if a.lookUp != 0 {
			continue
		}
		at = min(at, a.deadline)
		if len(a.left) > 0 {
			at = min(at, a.next)
		}
	}
	return at
}

// Resolved reports the addresses of a name that was looked up.
func (r *Race) Resolved(now time.Duration, id uint32, addrs []netip.AddrPort) {
	a := r.lookedUp(id)
	if a == nil {
		return
	}
	if a.again {
		addrs = slices.DeleteFunc(addrs, func(to netip.AddrPort) bool { return slices.Contains(a.known, to) })
	}
	a.left = r.search.choice.Arrange(a.endpoint, addrs)
	if !a.again {
		a.known = a.left
	}
	a.deadline = now + r.search.attempt
}

// lookedUp returns the attempt whose look-up has ended; nil: there is none.
func (r *Race) lookedUp(id uint32) *attempt {
	i := slices.IndexFunc(r.attempts, func(a attempt) bool { return a.lookUp == id })
	if i < 0 {
		return nil
	}
	a := &r.attempts[i]
	a.lookUp = 0
	return a
}

// Failed reports that a dial or a look-up has failed. The error of a dial says nothing of its address.
func (r *Race) Failed(now time.Duration, id uint32, err error) {
	if i := r.indexOf(id); i >= 0 {
		r.failed(i, now, err)
	} else if a := r.lookedUp(id); a != nil && !a.again {
		a.err = err
	}
}

// failed ends a dial that has failed. The next address of its endpoint is due at once.
func (r *Race) failed(i int, now time.Duration, err error) {
	d := r.dials[i]
	r.dials = slices.Delete(r.dials, i, i+1)
	a := r.attemptAt(d.endpoint)
	a.dials--
	a.failed, a.next = now, now
	if a.err = err; d.endpoint.Addr.Host != "" {
		a.err = fmt.Errorf("%v: %w", d.to, err)
	}
}

// indexOf returns where a dial is among those under way; negative: it is not.
func (r *Race) indexOf(id uint32) int {
	return slices.IndexFunc(r.dials, func(d dial) bool { return d.id == id })
}

func (r *Race) attemptAt(e *rotation.Endpoint) *attempt {
	return &r.attempts[slices.IndexFunc(r.attempts, func(a attempt) bool { return a.endpoint == e })]
}

// Connected reports that a dial has succeeded, and returns the endpoint that the client has from now on. The race is over. It returns nil if
// the race has stopped that dial: the engine resets the connection.
func (r *Race) Connected(now time.Duration, id uint32) *rotation.Endpoint {
	i := r.indexOf(id)
	if i < 0 {
		return nil
	}
	won := r.dials[i].endpoint
	for i := range r.attempts {
		switch a := &r.attempts[i]; {
		case a.endpoint == won:
		case a.hasFailed(): // in this moment
			r.search.missed(a.endpoint, a.failed-a.began, a.err)
		case a.dialled:
			r.search.outrun(a.endpoint, now-a.began)
		default:
			r.search.outrunByName(a.endpoint, now-a.began)
		}
	}
	r.search.answered(won)
	r.end()
	return won
}

// Abandon ends the race without a winner: the client has gone, or is cut. No endpoint is to blame.
func (r *Race) Abandon() {
	for i := range r.attempts {
		r.attempts[i].endpoint.EndDial()
	}
	r.end()
}

// end forgets what is under way.
func (r *Race) end() {
	clear(r.attempts[:cap(r.attempts)])
	clear(r.dials[:cap(r.dials)])
	r.attempts, r.dials = r.attempts[:0], r.dials[:0]
	r.repay()
}

// Failures returns the endpoints that the client was not given so far, and why.
func (r *Race) Failures() []Failure { return r.search.failed }

// WhyNone returns why no endpoint was found: the service left its port meanwhile, or what the failures say.
func (r *Race) WhyNone() traffic.Reason {
	if r.search.choice.Lifetime.IsOver() {
		return traffic.ServiceRemoved
	}
	return WhyNone(r.search.failed)
}

// Reset forgets a race that is over, but keeps its memory for the next one.
func (r *Race) Reset() { *r = Race{attempts: r.attempts, dials: r.dials} }
