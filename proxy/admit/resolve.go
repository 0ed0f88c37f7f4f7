package admit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// How host names of endpoints are resolved. A look-up runs beside the dial, and has time of its own: a system whose first
// nameserver is dead asks the second one after five seconds, and v0.4's clients were gone by then (D36).
//
//	age of the last good answer    a client gets
//	up to freshFor                 the answer
//	up to promptFor                the answer, while it is refreshed
//	up to staleFor                 the refreshed answer, or the old one after graceTime, or when the refresh fails
//	older, or there is none        what the look-up says, after LookUpTimeout at most
//
// A name that does not exist, by the word of a nameserver, has no old answer any more.
const (
	freshFor      = 5 * time.Second
	promptFor     = time.Minute
	staleFor      = time.Hour
	graceTime     = 250 * time.Millisecond
	LookUpTimeout = 15 * time.Second
	turnTimeout   = 10 * time.Second // how long a look-up waits for its turn: less would be left for it than the 5 s of one nameserver
	unresolvedFor = time.Second      // a look-up that failed is not repeated for so long
)

// Bounds of what names can cost. A look-up takes two descriptors, since it asks for both families at a time.
const (
	maxLookUps         = 32   // at a time; the others wait for them
	lookUpDescriptors  = 2    // of each, from the budget
	maxHosts           = 8192 // names that are remembered
	maxAddrs           = 8    // of one name
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
	Budget     *Budget // of the descriptors of look-ups
	maxWaiting int     // clients and sessions that wait for names; a quarter of them for one name

	flights singleflight.Group // the look-ups under way, by name
	slots   *semaphore.Weighted
	ctx     context.Context // ends all look-ups
	cancel  context.CancelFunc
	running sync.WaitGroup // look-ups

	mu      sync.Mutex // guards the fields below
	hosts   map[string]*hostAnswer
	waiting int
	closed  bool
}

// A hostAnswer is what is known of one name.
type hostAnswer struct {
	addrs    []netip.Addr // the last good answer; nil when there is none
	received time.Time    // when that came
	err      error        // of the last look-up
	settled  time.Time    // until then no other look-up is made
	waiting  int          // who waits for it
}

// NewResolver makes a resolver that asks the system, and shares out the descriptor limit of this process. Close ends it.
func NewResolver(own *OwnPorts) *Resolver {
	r := &Resolver{
		Own:    own,
		Lookup: nameservers(new(net.Dialer).DialContext).LookupNetIP,
		Budget: NewBudget(sockopt.DescriptorLimit()),
		slots:  semaphore.NewWeighted(maxLookUps),
		hosts:  make(map[string]*hostAnswer),
	}
	r.maxWaiting = waitingShare(r.Budget.Clients)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// nameservers asks the nameservers of the system, which it reaches by dial. Unlike that of package net, it leaves nothing behind when the
// context of a look-up ends: there the sockets stay open until the nameserver's time is up, five seconds, and are in no budget.
func nameservers(dial func(ctx context.Context, network, address string) (net.Conn, error)) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(0, 1)) }) // it may be closed by then
		}
		return c, err
	}}
}

// waitingShare is how many clients may wait for names, of so many descriptors for clients. Each holds two, so all
// together hold an eighth.
func waitingShare(descriptors int) int { return max(4, descriptors/16) }

// Close ends all look-ups, and waits for them.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.running.Wait()
}

// Resolve returns the addresses to try for an endpoint, never none without an error. For a name it may wait until ctx
// ends, but for no longer than LookUpTimeout.
func (r *Resolver) Resolve(ctx context.Context, protocol registry.Protocol, addr registry.Addr) ([]netip.AddrPort, error) {
	if addrs, err, ok := r.Recall(protocol, addr); ok {
		return addrs, err
	}
	ips, err := r.await(ctx, addr.Host)
	return r.usable(protocol, addr, ips, err)
}

// Recall is resolve for who cannot wait: it returns false when there is something to wait for.
func (r *Resolver) Recall(protocol registry.Protocol, addr registry.Addr) (addrs []netip.AddrPort, err error, ok bool) {
	ips := []netip.Addr{addr.IP.Addr()}
	if addr.Host != "" {
		if ips, err, ok = r.remembered(addr.Host); !ok {
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

// remembered returns the answer for a name where there is nothing to wait for, and has it refreshed when it is due.
func (r *Resolver) remembered(name string) (ips []netip.Addr, err error, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, now := r.hosts[name], time.Now()
	switch {
	case a == nil:
	case now.Before(a.settled) && (a.usable(now) || a.err != nil):
		ips, err = a.result(now)
		return ips, err, true
	case a.usable(now) && now.Sub(a.received) < promptFor:
		a.settled = now.Add(unresolvedFor) // or every client would ask for the look-up that is under way
		r.flights.DoChan(name, func() (any, error) { return nil, r.ask(name) })
		return a.addrs, nil, true
	}
	return r.fullLocked(name, a)
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
	a, answered, ips, err := r.join(name)
	if a == nil {
		return ips, err
	}
	defer r.leave(a)
	var grace <-chan time.Time
	if r.isUsable(a) {
		timer := time.NewTimer(graceTime)
		defer timer.Stop()
		grace = timer.C
	}
	select {
	case <-answered:
	case <-grace:
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

// join has the caller wait for the look-up of a name. If too many do, it returns what the caller gets instead.
func (r *Resolver) join(name string) (_ *hostAnswer, _ <-chan singleflight.Result, instead []netip.Addr, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.hosts[name]
	if ips, err, full := r.fullLocked(name, a); full {
		return nil, nil, ips, err
	}
	if a == nil {
		r.makeRoomLocked()
		a = new(hostAnswer)
		r.hosts[name] = a
	}
	a.waiting++
	r.waiting++
	return a, r.flights.DoChan(name, func() (any, error) { return nil, r.ask(name) }), nil, nil
}

func (r *Resolver) leave(a *hostAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.waiting--
	r.waiting--
}

func (r *Resolver) isUsable(a *hostAnswer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return a.usable(time.Now())
}

// usable reports whether the last good answer may still be given.
func (a *hostAnswer) usable(now time.Time) bool {
	return a.addrs != nil && now.Sub(a.received) < staleFor
}

// result returns the last good answer, or else the error of the last look-up.
func (a *hostAnswer) result(now time.Time) ([]netip.Addr, error) {
	if a.usable(now) {
		return a.addrs, nil
	}
	return nil, a.err
}

// makeRoomLocked forgets a name when as many as may be are remembered: of a few, the one whose answer is oldest. One
// that is waited for stays.
func (r *Resolver) makeRoomLocked() {
	if len(r.hosts) < maxHosts {
		return
	}
	var oldest string
	var received time.Time
	looks := 0
	for name, a := range r.hosts {
		if looks++; a.waiting == 0 && (oldest == "" || a.received.Before(received)) {
			oldest, received = name, a.received
		}
		if looks >= evictionCandidates && oldest != "" {
			break
		}
	}
	delete(r.hosts, oldest)
}

// ask looks a name up when it is its turn, and remembers what came of that.
func (r *Resolver) ask(name string) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return context.Canceled
	}
	r.running.Add(1)
	r.mu.Unlock()
	defer r.running.Done()
	ctx, cancel := context.WithTimeout(r.ctx, LookUpTimeout)
	defer cancel()
	ips, err := r.lookUp(ctx, name)
	r.mu.Lock()
	defer r.mu.Unlock()
	a, now := r.hosts[name], time.Now()
	if a == nil { // it was forgotten meanwhile
		r.makeRoomLocked()
		a = new(hostAnswer)
		r.hosts[name] = a
	}
	if err == nil {
		a.addrs, a.received, a.err, a.settled = ips, now, nil, now.Add(freshFor)
		return nil
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		a.addrs = nil
	}
	a.err, a.settled = fmt.Errorf("%w %s: %w", ErrUnresolved, registry.Quote(name), err), now.Add(unresolvedFor)
	return a.err
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
	return slices.Clone(ips[:min(len(ips), maxAddrs)]), err
}
