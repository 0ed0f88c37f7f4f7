package admit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// How host names of endpoints are resolved. A look-up runs beside the dial, and has time of its own: a system whose first
// nameserver is dead asks the second one after five seconds, and v0.4's clients were gone by then (D36).
//
//	age of the last good answer          a client gets
//	up to half its lifetime, or freshFor  the answer
//	up to its lifetime                    the answer, while it is refreshed
//	up to staleFor                        the refreshed answer, or the old one graceTime after that was asked for, or when the refresh fails
//	older, or there is none               what the look-up says, after LookUpTimeout at most
//
// The lifetime of an answer is its TTL, but Resolver.Floor at least and mostKept at most. An answer whose addresses could not be reached is
// used up: see Resolver.Doubt. A name that does not exist, by the word of a nameserver, has no old answer any more.
const (
	freshFor      = 5 * time.Second
	leastKept     = 5 * time.Second
	mostKept      = time.Minute
	staleFor      = time.Hour
	graceTime     = 500 * time.Millisecond
	LookUpTimeout = 15 * time.Second
	turnTimeout   = 10 * time.Second // how long a look-up waits for its turn: less would be left for it than the 5 s of one nameserver
	unresolvedFor = time.Second      // a look-up that failed is not repeated for so long
)

// Bounds of what names can cost. A look-up takes two descriptors, since it asks for both families at a time.
const (
	maxLookUps         = 32   // at a time; the others wait for them
	maxRefreshes       = 16   // of them for names that only sessions use
	lookUpDescriptors  = 2    // of each, from the budget
	maxHosts           = 8192 // names that are remembered
	maxAddrs           = 32   // of one name
	evictionCandidates = 16   // names that are looked at to find one to forget
)

// ErrUnresolved is what an endpoint gets whose name was not resolved. That says nothing about the endpoint.
var ErrUnresolved = errors.New("cannot resolve")

// A Resolver turns endpoints into addresses to dial: it resolves host names, and refuses our own listeners and what lies
// outside the allowed addresses.
type Resolver struct {
	Own        *OwnPorts
	Allowed    []netip.Prefix // where endpoints may be; none: anywhere
	Lookup     func(ctx context.Context, network, host string) ([]netip.Addr, error)
	Budget     *Budget       // of the descriptors of look-ups
	Floor      time.Duration // of the time for which answers are kept, however short their TTL
	maxWaiting int           // clients and sessions that wait for names; a quarter of them for one name

	slots   *semaphore.Weighted // of look-ups
	ctx     context.Context     // ends all look-ups
	cancel  context.CancelFunc
	running sync.WaitGroup // look-ups

	mu         sync.Mutex // guards the fields below
	hosts      map[string]*hostAnswer
	waiting    int
	refreshing int // look-ups of names that only sessions use
	closed     bool
}

// A hostAnswer is what is known of one name.
type hostAnswer struct {
	addrs    []netip.Addr  // the last good answer, by family and in order; nil when there is none
	received time.Time     // when that came
	lifetime time.Duration // of that
	doubted  bool          // its addresses could not be reached
	err      error         // of the last look-up
	settled  time.Time     // until then no other look-up is made
	began    time.Time     // the look-up under way,
	ended    chan struct{} // and closed when that has ended; nil while there is none
	waiting  int           // who waits for it

	changes atomic.Uint64 // of addrs; anybody may read it
	holds   int           // of sessions
	refresh *time.Timer   // while there are holds
	renews  bool          // the look-up under way is for them
}

// NewResolver makes a resolver that asks the system, and shares out the descriptor limit of this process. Close ends it.
func NewResolver(own *OwnPorts) *Resolver {
	r := &Resolver{
		Own:    own,
		Lookup: nameservers(new(net.Dialer).DialContext).LookupNetIP,
		Budget: NewBudget(sockopt.DescriptorLimit()),
		slots:  semaphore.NewWeighted(maxLookUps),
		Floor:  leastKept,
		hosts:  make(map[string]*hostAnswer),
	}
	r.maxWaiting = waitingShare(r.Budget.Clients)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// waitingShare is how many clients may wait for names, of so many descriptors for clients. Each holds two, so all
// together hold an eighth.
func waitingShare(descriptors int) int { return max(4, descriptors/16) }

// Close ends all look-ups, and waits for them.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.closed = true
	for _, a := range r.hosts {
		a.stopLocked()
	}
	r.mu.Unlock()
	r.cancel()
	r.running.Wait()
}

// Resolve returns the addresses to try for an endpoint, never none without an error. For a name it may wait until ctx
// ends, but for no longer than LookUpTimeout.
func (r *Resolver) Resolve(ctx context.Context, protocol registry.Protocol, addr registry.Addr) ([]netip.AddrPort, error) {
	ips := []netip.Addr{addr.IP.Addr()}
	var err error
	if addr.Host != "" {
		known := false
		r.mu.Lock()
		ips, err, known = r.rememberedLocked(addr.Host)
		r.mu.Unlock()
		if !known {
			ips, err = r.await(ctx, addr.Host)
		}
	}
	return r.usable(protocol, addr, ips, err)
}

// Recall is Resolve for who cannot wait, as an event loop: it returns false when there is something to wait for. That may be the lock alone. When
// many look-ups end at once, thousands of goroutines are in line for it, each of which the system has to run first.
func (r *Resolver) Recall(protocol registry.Protocol, addr registry.Addr) (addrs []netip.AddrPort, err error, ok bool) {
	ips := []netip.Addr{addr.IP.Addr()}
	if addr.Host != "" {
		if !r.mu.TryLock() {
			return nil, nil, false
		}
		ips, err, ok = r.rememberedLocked(addr.Host)
		r.mu.Unlock()
		if !ok {
			return nil, nil, false
		}
	}
	addrs, err = r.usable(protocol, addr, ips, err)
	return addrs, err, true
}

// usable returns those addresses of an endpoint that may be dialled.
func (r *Resolver) usable(protocol registry.Protocol, addr registry.Addr, ips []netip.Addr, err error) ([]netip.AddrPort, error) {
	var usable []netip.AddrPort
	for _, ip := range ips {
		to := netip.AddrPortFrom(ip.Unmap(), addr.IP.Port())
		if refusal := r.Refuse(protocol, to); refusal != nil {
			err = refusal
		} else {
			usable = append(usable, to)
		}
	}
	if len(usable) == 0 {
		return nil, err
	}
	return usable, nil
}

// Refuse returns why an address is not to be dialled; nil when it may be.
func (r *Resolver) Refuse(protocol registry.Protocol, to netip.AddrPort) error {
	switch {
	case r.Own.Contains(protocol, to):
		return ErrOwnListener
	case len(r.Allowed) > 0 && !registry.Within(r.Allowed, to.Addr()):
		return registry.ErrNotAllowed
	case registry.CheckUnicast(to.Addr()) != nil: // a name may stand for anything
		return errNotUnicast
	}
	return nil
}

// rememberedLocked returns the answer for a name where there is nothing to wait for, and has it refreshed when it is due.
func (r *Resolver) rememberedLocked(name string) (ips []netip.Addr, err error, ok bool) {
	a, now := r.hosts[name], time.Now()
	switch {
	case a == nil:
	case now.Before(a.settled) && (a.usable(now) || a.err != nil):
		ips, err = a.result(now)
		return ips, err, true
	case !a.usable(now):
	case !a.doubted && now.Sub(a.received) < a.lifetime:
		if now.Sub(a.received) >= a.fresh() {
			r.lookUpLocked(name, a)
		}
		return a.addrs, nil, true
	case a.ended != nil && now.Sub(a.began) >= graceTime: // nameservers are silent
		return a.addrs, nil, true
	}
	return r.fullLocked(name, a)
}

// Doubt notes that none of the addresses of an endpoint that a client has tried could be reached. It reports whether the client is to ask
// for its name once more: there are other addresses by now, or the answer is so old that there may be. It is for names only.
func (r *Resolver) Doubt(protocol registry.Protocol, addr registry.Addr, tried []netip.AddrPort) bool {
	if addr.Host == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a, now := r.hosts[addr.Host], time.Now()
	switch {
	case a == nil, !a.usable(now):
		return false
	case slices.ContainsFunc(a.addrs, func(ip netip.Addr) bool {
		to := netip.AddrPortFrom(ip, addr.IP.Port())
		return !slices.Contains(tried, to) && r.Refuse(protocol, to) == nil
	}):
		return true
	case now.Before(a.settled), now.Sub(a.received) < min(unresolvedFor, a.fresh()):
		return false
	}
	a.doubted = true
	return true
}

// fullLocked reports whether no other client may wait for a name, of which a is known. Then it also returns what the
// client gets: the last good answer if that is usable.
func (r *Resolver) fullLocked(name string, a *hostAnswer) (ips []netip.Addr, err error, full bool) {
	switch {
	case r.waiting < r.maxWaiting && (a == nil || a.waiting < max(1, r.maxWaiting/4)):
		return nil, nil, false
	case a != nil && a.usable(time.Now()):
		return a.addrs, nil, true
	}
	return nil, fmt.Errorf("%w %s: as many clients as may wait for names", ErrUnresolved, registry.Quote(name)), true
}

// await waits for the look-up of a name, which the first caller begins.
func (r *Resolver) await(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, LookUpTimeout)
	defer cancel()
	a, ended, grace, ips, err := r.join(name)
	if a == nil {
		return ips, err
	}
	defer r.leave(a)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ips, err = a.result(time.Now())
	if ips == nil && err == nil { // it has not answered
		err = fmt.Errorf("%w %s: no answer yet", ErrUnresolved, registry.Quote(name))
	}
	return ips, err
}

// join has the caller wait for the look-up of a name, for grace at most. If too many do, it returns what the caller gets instead.
func (r *Resolver) join(name string) (_ *hostAnswer, ended <-chan struct{}, grace time.Duration, instead []netip.Addr, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.hosts[name]
	if ips, err, full := r.fullLocked(name, a); full {
		return nil, nil, 0, ips, err
	}
	a = r.answerLocked(name)
	a.waiting++
	r.waiting++
	ended, grace = r.lookUpLocked(name, a), LookUpTimeout
	if now := time.Now(); a.usable(now) {
		grace = a.began.Add(graceTime).Sub(now)
	}
	return a, ended, grace, nil, nil
}

// answerLocked returns what is known of a name, for more to be added.
func (r *Resolver) answerLocked(name string) *hostAnswer {
	a := r.hosts[name]
	if a == nil {
		r.makeRoomLocked()
		a = new(hostAnswer)
		r.hosts[name] = a
	}
	return a
}

func (r *Resolver) leave(a *hostAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.waiting--
	r.waiting--
}

// usable reports whether the last good answer may still be given.
func (a *hostAnswer) usable(now time.Time) bool {
	return a.addrs != nil && now.Sub(a.received) < staleFor
}

// fresh is how old the last good answer may be before it is refreshed beside the client that gets it.
func (a *hostAnswer) fresh() time.Duration { return min(freshFor, a.lifetime/2) }

// isInUse reports whether somebody waits for the answer, or holds it, or it is being looked up.
func (a *hostAnswer) isInUse() bool { return a.waiting > 0 || a.holds > 0 || a.ended != nil }

// result returns the last good answer, or else the error of the last look-up.
func (a *hostAnswer) result(now time.Time) ([]netip.Addr, error) {
	if a.usable(now) {
		return a.addrs, nil
	}
	return nil, a.err
}

// makeRoomLocked forgets a name when as many as may be are remembered: of a few, the one whose answer is oldest. One
// that is in use stays: of these, there are as many as names of endpoints at most.
func (r *Resolver) makeRoomLocked() {
	if len(r.hosts) < maxHosts {
		return
	}
	var oldest string
	var received time.Time
	looks := 0
	for name, a := range r.hosts {
		if looks++; !a.isInUse() && (oldest == "" || a.received.Before(received)) {
			oldest, received = name, a.received
		}
		if looks >= evictionCandidates && oldest != "" {
			break
		}
	}
	delete(r.hosts, oldest)
}

// lookUpLocked begins the look-up of a name, unless one is under way. It returns what is closed when that has ended.
func (r *Resolver) lookUpLocked(name string, a *hostAnswer) (ended <-chan struct{}) {
	if a.ended != nil {
		return a.ended
	}
	c := make(chan struct{})
	if r.closed {
		close(c)
		return c
	}
	a.began, a.ended = time.Now(), c
	r.running.Go(func() { r.ask(name, a) })
	return c
}

// ask looks a name up when it is its turn, and remembers what came of that.
func (r *Resolver) ask(name string, a *hostAnswer) {
	ctx, cancel := context.WithTimeout(r.ctx, LookUpTimeout)
	defer cancel()
	ttl := new(answerTTL)
	ips, err := r.lookUp(context.WithValue(ctx, ttlKey{}, ttl), name)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(a.ended)
	a.ended, a.doubted = nil, false
	if a.renews {
		a.renews = false
		r.refreshing--
	}
	switch dns, ok := errors.AsType[*net.DNSError](err); {
	case err == nil:
		a.setLocked(ips)
		a.received, a.lifetime, a.err, a.settled = time.Now(), min(max(ttl.shortest(), r.Floor), mostKept), nil, time.Time{}
	case ok && dns.IsNotFound:
		if a.setLocked(nil); a.changes.Load() == 0 { // sessions of a predecessor hold an address of before
			a.changes.Add(1)
		}
		fallthrough
	default:
		a.err, a.settled = fmt.Errorf("%w %s: %w", ErrUnresolved, registry.Quote(name), err), time.Now().Add(unresolvedFor)
	}
	r.scheduleLocked(name, a)
}

// setLocked makes addrs the answer.
func (a *hostAnswer) setLocked(addrs []netip.Addr) {
	if !slices.Equal(a.addrs, addrs) {
		a.changes.Add(1)
	}
	a.addrs = addrs
}

// lookUp asks the system for the addresses of a name, within what look-ups may take.
func (r *Resolver) lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	turn, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	if err := r.slots.Acquire(turn, 1); err != nil {
		return nil, fmt.Errorf("%d other names were being looked up for %v", maxLookUps, turnTimeout)
	}
	defer r.slots.Release(1)
	if !r.Budget.Take(lookUpDescriptors) {
		return nil, ErrNoDescriptors
	}
	defer r.Budget.Release(lookUpDescriptors)
	ips, err := r.Lookup(ctx, "ip", name)
	if err == nil && len(ips) == 0 {
		err = errors.New("no addresses")
	}
	if err != nil {
		return nil, err
	}
	return inOrder(ips), nil
}

// inOrder returns the addresses of an answer, those of the family of the first one before the others: that is the one which the system
// prefers. Within a family they are sorted, since nameservers change their order from one answer to the next.
func inOrder(ips []netip.Addr) []netip.Addr {
	addrs := make([]netip.Addr, 0, len(ips))
	for _, ip := range ips {
		addrs = append(addrs, ip.Unmap())
	}
	preferred := addrs[0].Is4()
	slices.SortFunc(addrs, func(a, b netip.Addr) int {
		if a.Is4() != b.Is4() {
			if a.Is4() == preferred {
				return -1
			}
			return 1
		}
		return a.Compare(b)
	})
	addrs = slices.Compact(addrs)
	return slices.Clone(addrs[:min(len(addrs), maxAddrs)])
}
