package balance

import (
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// An endpoint that refuses or stays silent is passed over for firstDown, then twice as long each
// time it fails again on its return, up to mostDown.
const (
	firstDown = time.Second
	mostDown  = 30 * time.Second
)

// An Endpoint is one address in one rotation. Later sets of the rotation keep it, and with it what
// is known of it.
type Endpoint struct {
	Addr      registry.Addr
	Rotation  *Rotation
	forbidden bool                   // its address is not allowed
	at        atomic.Int32           // its position in the newest set that it is in
	known     atomic.Pointer[record] // nil until there is any
}

// A record is all that happens to an endpoint.
type record struct {
	health   [2]health   // by Protocol: who refuses datagrams may well accept connections
	gone     atomic.Bool // no longer in the rotation: a UDP session looks at it on each datagram
	Lifetime Lifetime    // in the rotation; for TCP connections

	Dialing     atomic.Int64  // TCP dials under way
	active      atomic.Int64  // connections and sessions now
	connections atomic.Uint64 // and since it came
	Failures    atomic.Uint64 // attempts that did not reach it; counted by failed
}

// Record returns what is known of the endpoint, for more to be added.
func (e *Endpoint) Record() *record {
	if x := e.known.Load(); x != nil {
		return x
	}
	e.known.CompareAndSwap(nil, new(record))
	return e.known.Load()
}

// Gone tells whether the endpoint is no longer in its rotation.
func (e *Endpoint) Gone() bool {
	x := e.known.Load()
	return x != nil && x.gone.Load()
}

// downUntil returns until when clients of a protocol are given other endpoints, by the clock of
// Now: 0 when the last attempt succeeded, and when there was none.
func (e *Endpoint) downUntil(protocol registry.Protocol) time.Duration {
	x := e.known.Load()
	if x == nil {
		return 0
	}
	return time.Duration(x.health[protocol].downUntil.Load())
}

// Given notes that the endpoint was given a connection or a session.
func (e *Endpoint) Given() {
	x := e.Record()
	x.active.Add(1)
	x.connections.Add(1)
}

// Joined notes that a connection or session of the endpoint was adopted: a predecessor has counted it as given.
func (e *Endpoint) Joined() { e.Record().active.Add(1) }

// Left notes that one of those has ended, or has moved to another endpoint.
func (e *Endpoint) Left() { e.Record().active.Add(-1) }

// A health is what is known of an endpoint over one protocol. The zero value is well. Its times are
// monotonic: when the time of day is set, no endpoint is ejected for longer, or comes back earlier.
type health struct {
	downUntil           atomic.Int64 // by the clock of Now; 0 when the last attempt succeeded
	aside               atomic.Int64 // the same clock: until when it cannot be used, through no fault of its own; 0 for not
	failingSince        atomic.Int64 // the same clock: the first failure since the last success; it counts while downUntil is not 0
	consecutiveFailures atomic.Int64 // failed returns since the last success
	halfOpen            atomic.Bool  // its time to return has come, and one client is finding out whether it does
}

// down tells whether the endpoint is being passed over just now.
func (e *Endpoint) down(protocol registry.Protocol) bool {
	until := e.downUntil(protocol)
	return until != 0 && monotonic.Now() < until
}

// asideFor is how long an endpoint is not offered whose name was not resolved, or whose address our own rules refuse.
// The addresses of this machine are taken as known for as long, and answers to names (localFor, freshFor).
const asideFor = 5 * time.Second

// setAside ejects the endpoint for asideFor, through no fault of its own.
func (e *Endpoint) setAside(protocol registry.Protocol) {
	e.Record().health[protocol].aside.Store(int64(monotonic.Now() + asideFor))
	e.follow(protocol)
}

// returns returns until when clients are given other endpoints, by the clock of Now; 0 when they are not.
func (e *Endpoint) returns(protocol registry.Protocol) time.Duration {
	x := e.known.Load()
	if x == nil {
		return 0
	}
	down, aside := x.health[protocol].downUntil.Load(), x.health[protocol].aside.Load()
	if down == 0 || aside == 0 {
		return time.Duration(down + aside)
	}
	return time.Duration(max(down, aside))
}

// follow has the roster that the endpoint is in follow its health.
func (e *Endpoint) follow(protocol registry.Protocol) {
	set, at := e.Rotation.set.Load(), int(e.at.Load())
	r := set.rosters[protocol].Load()
	if r == nil || e.forbidden || at >= len(set.endpoints) || set.endpoints[at] != e {
		return // there is none; or the endpoint has left, or is being given its place in a new set
	}
	r.sort(at, e.returns(protocol))
}

// passesOver tells whether a client that could have the endpoint is to be given another one: while it is ejected
// and, over TCP, while another client finds out whether it has returned. Who is told false first after it was
// due back is that one: if it is silent still, it costs nobody else a quarter of a second. (A UDP client that
// hears nothing finds out nothing.)
func (e *Endpoint) passesOver(protocol registry.Protocol) bool {
	if e.forbidden {
		return true
	}
	x := e.known.Load()
	if x == nil {
		return false
	}
	h := &x.health[protocol]
	until, aside := h.downUntil.Load(), h.aside.Load()
	if until == 0 && aside == 0 {
		return false
	}
	now := monotonic.Now()
	if aside != 0 && int64(now) >= aside {
		h.aside.CompareAndSwap(aside, 0)
		aside = 0
	}
	switch {
	case aside != 0:
		return true
	case until == 0:
		return false
	case int64(now) < until:
		return true
	case protocol == registry.UDP:
		return false
	case !h.downUntil.CompareAndSwap(until, int64(now+trialTime)):
		return h.downUntil.Load() != 0 // somebody else was first, or it has answered
	}
	h.halfOpen.Store(true)
	return false
}

// trialTime is when another client may try, should the first not have found out: it went away meanwhile.
const trialTime = time.Second

// An outage is what a log line about the health of an endpoint is about: where it fails, or answers again.
type outage struct {
	endpoint *Endpoint
	protocol registry.Protocol
	over     bool
}

// Failed notes that the endpoint refused or stayed silent. Of many clients that fail together only
// the first counts, and only a failure after the endpoint was due back makes the next wait longer.
func (e *Endpoint) Failed(protocol registry.Protocol) {
	x := e.Record()
	x.Failures.Add(1)
	h := &x.health[protocol]
	until, now := h.downUntil.Load(), monotonic.Now()
	if trial := h.halfOpen.CompareAndSwap(true, false); until != 0 && until > int64(now) && !trial {
		return
	}
	failures := h.consecutiveFailures.Load()
	if failures == 0 {
		h.failingSince.Store(int64(now)) // before downUntil, since it counts from then on
	}
	wait := min(firstDown<<min(failures, 5), mostDown)
	if !h.downUntil.CompareAndSwap(until, int64(now+wait)) {
		return
	}
	e.follow(protocol)
	if h.consecutiveFailures.Add(1) == 1 {
		if note, ok := e.Rotation.balancer.outages.Allow(outage{e, protocol, false}); ok {
			glog.Warningf("%s: endpoint %s does not answer over %s; passing it over until it does%s", e.Rotation.Key, e.Addr, protocol, note)
		} else if v := glog.V(3); v {
			v.Infof("%s: endpoint %s does not answer over %s", e.Rotation.Key, e.Addr, protocol)
		}
	}
}

// Answered notes that the endpoint is well.
func (e *Endpoint) Answered(protocol registry.Protocol) {
	h := &e.Record().health[protocol]
	if h.downUntil.Load() != 0 && h.downUntil.Swap(0) != 0 {
		h.consecutiveFailures.Store(0)
		h.halfOpen.Store(false)
		e.follow(protocol)
		if note, ok := e.Rotation.balancer.outages.Allow(outage{e, protocol, true}); ok {
			glog.Infof("%s: endpoint %s answers again over %s%s", e.Rotation.Key, e.Addr, protocol, note)
		} else if v := glog.V(3); v {
			v.Infof("%s: endpoint %s answers again over %s", e.Rotation.Key, e.Addr, protocol)
		}
	}
}
