package proxy

import (
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// An endpoint that refuses or stays silent is passed over for firstDown, then twice as long each
// time it fails again on its return, up to mostDown.
const (
	firstDown = time.Second
	mostDown  = 30 * time.Second
)

// An endpoint is one address in one rotation. Later sets of the rotation keep it, and with it what
// is known of it.
type endpoint struct {
	addr     registry.Addr
	rotation *rotation
	known    atomic.Pointer[experience] // nil until there is any
}

// An experience is all that happens to an endpoint.
type experience struct {
	health [2]health   // by Protocol: who refuses datagrams may well accept connections
	gone   atomic.Bool // no longer in the rotation: a UDP session looks at it on each datagram
	tenure tenure      // in the rotation; for TCP connections

	dialing     atomic.Int64  // TCP dials under way
	active      atomic.Int64  // connections and sessions now
	connections atomic.Uint64 // and since it came
	failures    atomic.Uint64 // attempts that did not reach it; counted by failed
}

// experience returns what is known of the endpoint, for more to be added.
func (e *endpoint) experience() *experience {
	if x := e.known.Load(); x != nil {
		return x
	}
	e.known.CompareAndSwap(nil, new(experience))
	return e.known.Load()
}

// gone tells whether the endpoint is no longer in its rotation.
func (e *endpoint) gone() bool {
	x := e.known.Load()
	return x != nil && x.gone.Load()
}

// downUntil tells until when the endpoint is passed over over a protocol, in Unix nanoseconds; 0 when its
// last attempt succeeded, and when there was none.
func (e *endpoint) downUntil(protocol registry.Protocol) int64 {
	x := e.known.Load()
	if x == nil {
		return 0
	}
	return x.health[protocol].downUntil.Load()
}

// given notes that the endpoint was given a connection or a session, and left that it has left.
func (e *endpoint) given() {
	x := e.experience()
	x.active.Add(1)
	x.connections.Add(1)
}

func (e *endpoint) left() { e.experience().active.Add(-1) }

// A health is what is known of an endpoint over one protocol. The zero value is well.
type health struct {
	downUntil atomic.Int64 // Unix time in nanoseconds; 0 when the last attempt succeeded
	strikes   atomic.Int64 // failed returns since the last success
	onTrial   atomic.Bool  // its time to return has come, and one client is finding out whether it does
}

// down tells whether the endpoint is being passed over just now.
func (e *endpoint) down(protocol registry.Protocol) bool {
	until := e.downUntil(protocol)
	return until != 0 && time.Now().UnixNano() < until
}

// passesOver tells whether a client that could have the endpoint is to be given another one: while it is down
// and, over TCP, while another client finds out whether it has returned. Who is told false first after it was
// due back is that one: if it is silent still, it costs nobody else a quarter of a second. (A UDP client that
// hears nothing finds out nothing.)
func (e *endpoint) passesOver(protocol registry.Protocol) bool {
	until := e.downUntil(protocol)
	if until == 0 {
		return false
	}
	h, now := &e.experience().health[protocol], time.Now()
	switch {
	case now.UnixNano() < until:
		return true
	case protocol == registry.UDP:
		return false
	case !h.downUntil.CompareAndSwap(until, now.Add(trialTime).UnixNano()):
		return h.downUntil.Load() != 0 // somebody else was first, or it has answered
	}
	h.onTrial.Store(true)
	return false
}

// trialTime is when another client may try, should the first not have found out: it went away meanwhile.
const trialTime = time.Second

// failed notes that the endpoint refused or stayed silent. Of many clients that fail together only
// the first counts, and only a failure after the endpoint was due back makes the next wait longer.
func (e *endpoint) failed(protocol registry.Protocol) {
	x := e.experience()
	x.failures.Add(1)
	h := &x.health[protocol]
	until, now := h.downUntil.Load(), time.Now()
	if trial := h.onTrial.CompareAndSwap(true, false); until > now.UnixNano() && !trial {
		return
	}
	wait := min(firstDown<<min(h.strikes.Load(), 5), mostDown)
	if h.downUntil.CompareAndSwap(until, now.Add(wait).UnixNano()) && h.strikes.Add(1) == 1 {
		if note, ok := e.rotation.balancer.outages.ask(); ok {
			glog.Warningf("%s: endpoint %s does not answer over %s; passing it over until it does%s", e.rotation.key, e.addr, protocol, note)
		} else if v := glog.V(3); v {
			v.Infof("%s: endpoint %s does not answer over %s", e.rotation.key, e.addr, protocol)
		}
	}
}

// answered notes that the endpoint is well.
func (e *endpoint) answered(protocol registry.Protocol) {
	h := &e.experience().health[protocol]
	if h.downUntil.Load() != 0 && h.downUntil.Swap(0) != 0 {
		h.strikes.Store(0)
		h.onTrial.Store(false)
		if note, ok := e.rotation.balancer.outages.ask(); ok {
			glog.Infof("%s: endpoint %s answers again over %s%s", e.rotation.key, e.addr, protocol, note)
		} else if v := glog.V(3); v {
			v.Infof("%s: endpoint %s answers again over %s", e.rotation.key, e.addr, protocol)
		}
	}
}
