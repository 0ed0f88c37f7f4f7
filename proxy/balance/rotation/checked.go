package rotation

import (
	"github.com/golang/glog"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// How endpoints of a rotation are checked while no client comes. A rotation that is checked does not sleep.

// SetTerms has the endpoints follow the terms of the service, for clients of its ports; none: it has no such port. What it last said of removals goes
// on for the endpoints that go after it. The balancer calls it for one rotation at a time.
func (r *Rotation) SetTerms(terms *registry.Terms, of health.Clients) {
	var are [2]check
	for protocol := range of.Each() {
		if r.rules.Checker != nil {
			are[protocol].key, are[protocol].on = r.rules.Checker.Wants(protocol, terms)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.offerLocked(of); of != 0 {
		r.followLocked(terms)
	}
	r.set.Store(r.preparedLocked(r.set.Load()))
	if are == r.wantedChecks() {
		return
	}
	if of == 0 {
		defer r.callHook() // a client that waits is told when the port is another's: see LetGo of package balance
	} else {
		defer r.changed()
	}
	for _, e := range r.set.Load().endpoints {
		r.unwatchLocked(e, are)
	}
	if r.checks = nil; are[registry.TCP].on || are[registry.UDP].on {
		r.checks = &[2]check{are[registry.TCP], are[registry.UDP]} // and not &are, which would be allocated in every call
		set := r.awakeLocked()                                     // which may watch them already
		for _, e := range set.endpoints {
			r.watchLocked(e)
		}
	}
}

// wantedChecks returns how the endpoints are checked, by Protocol.
func (r *Rotation) wantedChecks() [2]check {
	if r.checks == nil {
		return [2]check{}
	}
	return *r.checks
}

// watchLocked has an endpoint checked, if its rotation is.
func (r *Rotation) watchLocked(e *Endpoint) {
	for protocol, c := range r.wantedChecks() {
		if !c.on || e.forbidden {
			continue
		}
		x := e.stats()
		if x.checks[protocol].Load() != nil {
			continue
		}
		x.checks[protocol].Store(r.rules.Checker.Watch(c.key.At(e.Addr), e))
	}
}

// unwatchLocked has an endpoint not checked any more, but for what it goes on being asked: of that what was found stays known.
func (r *Rotation) unwatchLocked(e *Endpoint, want [2]check) {
	x := e.known.Load()
	if x == nil {
		return
	}
	for protocol, c := range want {
		key := c.key.At(e.Addr)
		switch t := x.checks[protocol].Load(); {
		case t == nil || c.on && key == t.Key:
		case c.on && key.Question == t.Question:
			x.checks[protocol].Store(r.rules.Checker.Rewatch(t, key, e))
		default:
			x.checks[protocol].Store(nil)
			r.rules.Checker.Unwatch(t, e)
			e.Checked(registry.Protocol(protocol), true)
		}
	}
}

// Service returns the service that the endpoint is checked for.
func (e *Endpoint) Service() registry.Name { return e.Rotation.Key.Name }

// Checked notes what checks of the endpoint have found, if that is news. Only the checker and the rotation call it.
func (e *Endpoint) Checked(protocol registry.Protocol, passes bool) {
	if passes != e.failsCheck(protocol) {
		return
	}
	e.stats().health[protocol].Checked(passes, e.Rotation.rules.Checker.SlowStart)
	e.follow(protocol)
	if passes {
		return
	}
	failure := e.Rotation.terms.Load().Failure
	if failure.Close && protocol == registry.TCP && !e.Gone() {
		e.closeConnections()
	}
	if set := e.Rotation.set.Load(); !e.isExcluded() && len(set.endpoints) > 0 && !set.seenBy(0).hasReady(protocol) {
		then := "clients are given all of them; if clients are served, the check is wrong"
		if failure.Refuse {
			then = "clients are given none whose checks fail (kube-proxy/all-failed)"
		}
		if note, ok := e.Rotation.rules.ignored.Allow(e.Rotation.Key); ok {
			glog.Warningf("%s: all endpoints fail their checks or do not answer over %s, so %s%s", e.Rotation.Key, protocol, then, note)
		}
	}
}

// isClosed reports whether no TCP connection is to be at the endpoint: its checks fail, and those to it were closed. Where all endpoints fail and clients
// are given them all the same, it is not.
func (e *Endpoint) isClosed() bool {
	failure := e.Rotation.terms.Load().Failure
	return failure.Close && e.failsCheck(registry.TCP) && (failure.Refuse || e.Rotation.awake().seenBy(0).hasReady(registry.TCP))
}

// closeConnections has the TCP connections of the endpoint closed: those that began before its checks failed.
func (e *Endpoint) closeConnections() {
	if began := e.stats().lifetime.Swap(nil); began != nil {
		began.End(removal.Policy{Close: true}, traffic.EndpointFailed, 0)
	}
}

// Passed notes that a check of the endpoint has passed, which stands for a client that finds out whether it has returned. Only the
// checker calls it.
func (e *Endpoint) Passed(protocol registry.Protocol) {
	if h := e.healthOf(protocol); h != nil && h.Returned() {
		e.readmit(protocol)
	}
}

// Noted notes that a check of the endpoint has another result than the one before. Only the checker calls it.
func (e *Endpoint) Noted(registry.Protocol) { e.Rotation.changed() }
