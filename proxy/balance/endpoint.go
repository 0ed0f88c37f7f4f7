package balance

import (
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// An Endpoint is one address in one rotation. Later sets of the rotation keep it, and with it what
// is known of it.
type Endpoint struct {
	Addr      registry.Addr
	Rotation  *Rotation
	forbidden bool                   // its address is not allowed
	weight    atomic.Int32           // in the newest set that it is in; 0: no new client
	at        atomic.Int32           // its position in the newest set that it is in
	known     atomic.Pointer[record] // nil until there is any
}

// A record is all that happens to an endpoint.
type record struct {
	health   [2]health.Health // by Protocol: who refuses datagrams may well accept connections
	gone     atomic.Bool      // no longer in the rotation: a UDP session looks at it on each datagram
	Lifetime Lifetime         // in the rotation; for TCP connections

	Dialing     atomic.Int64  // TCP dials under way
	active      atomic.Int64  // connections and sessions now
	connections atomic.Uint64 // and since it came
	Failures    atomic.Uint64 // attempts that did not reach it; counted by failed

	checks [2]atomic.Pointer[checks.Target] // by Protocol: nil where it is not checked; written under the rotation's mu
}

// Record returns what is known of the endpoint, for more to be added.
func (e *Endpoint) Record() *record {
	if x := e.known.Load(); x != nil {
		return x
	}
	e.known.CompareAndSwap(nil, new(record))
	return e.known.Load()
}

// Gone reports whether the endpoint is no longer in its rotation.
func (e *Endpoint) Gone() bool {
	x := e.known.Load()
	return x != nil && x.gone.Load()
}

// healthOf returns what is known of the endpoint over a protocol; nil: nothing.
func (e *Endpoint) healthOf(protocol registry.Protocol) *health.Health {
	if x := e.known.Load(); x != nil {
		return &x.health[protocol]
	}
	return nil
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

// down reports whether the endpoint is being passed over just now.
func (e *Endpoint) down(protocol registry.Protocol) bool {
	h := e.healthOf(protocol)
	return h != nil && h.DownUntil() != 0 && monotonic.Now() < h.DownUntil()
}

// setAside ejects the endpoint for a while, through no fault of its own.
func (e *Endpoint) setAside(protocol registry.Protocol) {
	e.Record().health[protocol].SetAside()
	e.follow(protocol)
}

// returns returns until when clients are given other endpoints, by the clock of Now; 0 when they are not.
func (e *Endpoint) returns(protocol registry.Protocol) time.Duration {
	if h := e.healthOf(protocol); h != nil {
		return h.Returns()
	}
	return 0
}

// follow has the roster that the endpoint is in follow its health.
func (e *Endpoint) follow(protocol registry.Protocol) {
	defer e.Rotation.changed()
	set, at := e.Rotation.set.Load(), int(e.at.Load())
	r := set.rosters[protocol].Load()
	if r == nil || e.isExcluded() || at >= len(set.endpoints) || set.endpoints[at] != e {
		return // there is none; or the endpoint has left, or is being given its place in a new set
	}
	r.sort(at, e.returns(protocol))
}

// isExcluded reports whether no new client is given the endpoint, however it is: its address is not allowed, or its weight is 0.
func (e *Endpoint) isExcluded() bool { return e.forbidden || e.weight.Load() == 0 }

// passesOver reports whether a client that could have the endpoint is to be given another one.
func (e *Endpoint) passesOver(protocol registry.Protocol) bool {
	if e.isExcluded() {
		return true
	}
	x := e.known.Load()
	return x != nil && x.health[protocol].PassesOver(protocol)
}

// An outage is what a log line about the health of an endpoint is about: where it fails, or answers again.
type outage struct {
	endpoint *Endpoint
	protocol registry.Protocol
	over     bool
}

// Failed notes that the endpoint refused or stayed silent.
func (e *Endpoint) Failed(protocol registry.Protocol) {
	x := e.Record()
	x.Failures.Add(1)
	changed, first := x.health[protocol].Failed()
	if !changed {
		return
	}
	e.follow(protocol)
	if first {
		if note, ok := e.Rotation.balancer.outages.Allow(outage{e, protocol, false}); ok {
			glog.Warningf("%s: endpoint %s does not answer over %s; passing it over until it does%s", e.Rotation.Key, e.Addr, protocol, note)
		} else if v := glog.V(3); v {
			v.Infof("%s: endpoint %s does not answer over %s", e.Rotation.Key, e.Addr, protocol)
		}
	}
}

// Answered notes that the endpoint is well.
func (e *Endpoint) Answered(protocol registry.Protocol) {
	if !e.Record().health[protocol].Answered() {
		return
	}
	e.follow(protocol)
	if note, ok := e.Rotation.balancer.outages.Allow(outage{e, protocol, true}); ok {
		glog.Infof("%s: endpoint %s answers again over %s%s", e.Rotation.Key, e.Addr, protocol, note)
	} else if v := glog.V(3); v {
		v.Infof("%s: endpoint %s answers again over %s", e.Rotation.Key, e.Addr, protocol)
	}
}
