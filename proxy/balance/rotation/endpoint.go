package rotation

import (
	"errors"
	"math"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// stats returns the statistics of the endpoint, and makes them if it has none yet.
func (e *Endpoint) stats() *stats {
	if x := e.known.Load(); x != nil {
		return x
	}
	e.known.CompareAndSwap(nil, new(stats))
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

// Lifetime is the time for which the endpoint is in its rotation, or until its checks fail where the service has connections closed then. A TCP
// connection belongs to that which it began under.
func (e *Endpoint) Lifetime() *removal.Lifetime {
	t := e.PresentLifetime()
	if e.isClosed() { // since the client chose it
		t = new(removal.Lifetime)
		t.End(removal.Policy{Close: true}, traffic.EndpointFailed, 0)
	}
	return t // or its checks fail in this moment, which ends it
}

// PresentLifetime is that of a connection which stayed at the endpoint in a predecessor (see StaysWhileFailing): it goes on, also where none may begin.
func (e *Endpoint) PresentLifetime() *removal.Lifetime {
	for x := e.stats(); ; x.lifetime.CompareAndSwap(nil, new(removal.Lifetime)) {
		if t := x.lifetime.Load(); t != nil {
			return t
		}
	}
}

// StaysWhileFailing reports whether a connection that began under a lifetime goes on at the endpoint although its checks fail: it began after they did.
func (e *Endpoint) StaysWhileFailing(began *removal.Lifetime) bool {
	return e.failsCheck(registry.TCP) && !began.IsOver()
}

// Why an endpoint that is offered may not be dialled.
var (
	ErrDialLimit = errors.New("too many dials are under way")
	ErrFull      = errors.New("it has as many connections as the service allows an endpoint")
)

// BeginDial notes that a dial of the endpoint begins, unless most are under way or it has no place left. A dial ends by [Endpoint.Given] or
// [Endpoint.EndDial]. A UDP session is dialled, too, from the moment that it is offered the endpoint.
func (e *Endpoint) BeginDial(most int64) error {
	x := e.stats()
	if x.dialing.Add(1) > most {
		x.dialing.Add(-1)
		return ErrDialLimit
	}
	if x.taken.Add(1) > e.places() {
		e.EndDial()
		return ErrFull
	}
	return nil
}

// EndDial notes that a dial which had begun has come to nothing.
func (e *Endpoint) EndDial() {
	e.stats().dialing.Add(-1)
	e.Left(false)
}

// places is how many clients of this node the endpoint may have at a time.
func (e *Endpoint) places() int64 {
	if most := e.Rotation.terms.Load().Limits.PerEndpoint; most > 0 {
		return int64(most)
	}
	return math.MaxInt64
}

// isFull reports whether the endpoint has no place left for a client.
func (e *Endpoint) isFull() bool {
	x := e.known.Load()
	return x != nil && x.taken.Load() >= e.places()
}

// Missed counts an attempt that did not reach the endpoint, and does not hold it against it.
func (e *Endpoint) Missed() { e.stats().failures.Add(1) }

// Given notes that a dial has succeeded: the endpoint was given a connection or a session.
func (e *Endpoint) Given() {
	x := e.stats()
	x.dialing.Add(-1)
	x.connections.Add(1)
	if p := e.place() & (registry.InZone | registry.OutOfZone); p != 0 {
		if z := e.Rotation.set.Load().zones; z != nil { // else the endpoint has left, or just come
			z.given[p/registry.OutOfZone].Add(1)
		}
	}
}

// Joined notes that a connection or session of the endpoint was adopted: a predecessor has counted it as given.
func (e *Endpoint) Joined() { e.stats().taken.Add(1) }

// Finished notes that the endpoint has ended one of those, which is no load of it any more although its client has not ended it.
func (e *Endpoint) Finished() {
	e.stats().finished.Add(1)
	e.Left(false)
}

// Left notes that one of those has ended, or has moved to another endpoint. finished says whether the endpoint had ended it before.
func (e *Endpoint) Left(finished bool) {
	x := e.stats()
	if finished {
		x.finished.Add(-1)
		return
	}
	x.taken.Add(-1)
	e.freed(x)
}

// active counts the connections and sessions of the endpoint, also those that it has ended and their clients have not, and the dials to it.
func (x *stats) active() int64 { return x.taken.Load() + x.finished.Load() }

// freed puts an endpoint that has a free place again back into the rosters that left it out, and tells clients that wait. A roster sets
// full and then looks at taken (staysFull); the caller of freed has changed taken, and full is read here. So one of the two sees the other's write.
func (e *Endpoint) freed(x *stats) {
	if !x.full.Load() || e.isFull() || !x.full.CompareAndSwap(true, false) {
		return
	}
	for protocol := range registry.UDP + 1 {
		e.resort(protocol)
	}
	e.Rotation.rules.news.TellSoon(e.Rotation)
}

// staysFull has freed tell when the endpoint has a free place again; false: it has one by now.
func (e *Endpoint) staysFull() bool {
	e.stats().full.Store(true)
	return e.isFull()
}

// failsCheck reports whether checks of the endpoint fail over a protocol.
func (e *Endpoint) failsCheck(protocol registry.Protocol) bool {
	h := e.healthOf(protocol)
	return h != nil && h.FailsCheck()
}

// setAside ejects the endpoint for a while, through no fault of its own.
func (e *Endpoint) setAside(protocol registry.Protocol, why traffic.Reason) {
	e.stats().health[protocol].SetAside(why)
	e.follow(protocol)
}

// returns returns until when clients are given other endpoints, by the clock of Now; 0 when they are not.
func (e *Endpoint) returns(protocol registry.Protocol) time.Duration {
	if h := e.healthOf(protocol); h != nil {
		return h.Returns()
	}
	return 0
}

// follow has the rosters that the endpoint is in follow its health.
func (e *Endpoint) follow(protocol registry.Protocol) {
	defer e.Rotation.changed()
	if e.isExcluded() {
		return
	}
	e.Rotation.noteSpill(e.resort(protocol), protocol)
}

// resort puts the endpoint where it belongs in the rosters of the newest set, which it returns. One that is excluded belongs in none.
func (e *Endpoint) resort(protocol registry.Protocol) *endpointSet {
	set, due := e.Rotation.set.Load(), e.returns(protocol)
	for t := range set.everyTier() {
		if r, at := t.rosters[protocol].Load(), t.position(e); r != nil && at >= 0 && !e.isExcluded() {
			r.sort(at, due)
		}
	}
	return set
}

// place returns where the endpoint is.
func (e *Endpoint) place() registry.Place { return registry.Place(e.where.Load()) }

// isBackup reports whether the endpoint stands by.
func (e *Endpoint) isBackup() bool { return e.place()&registry.Backup != 0 }

// isExcluded reports whether no new client is given the endpoint, however it is: its address is not allowed, or its weight is 0.
func (e *Endpoint) isExcluded() bool { return e.forbidden || e.weight.Load() == 0 }

// skips reports whether a client that could have the endpoint is to be given another one. For who had it before it need not warm up.
func (e *Endpoint) skips(protocol registry.Protocol, hadIt bool) bool {
	x := e.known.Load()
	return e.isExcluded() || x != nil && (e.isFull() || x.health[protocol].Skips(protocol, hadIt))
}

// Failed notes that the endpoint refused or stayed silent.
func (e *Endpoint) Failed(protocol registry.Protocol) {
	x := e.stats()
	x.failures.Add(1)
	changed, first := x.health[protocol].Failed()
	if !changed {
		return
	}
	e.follow(protocol)
	if first {
		if note, ok := e.Rotation.rules.outages.Allow(outage{e, protocol, false}); ok {
			glog.Warningf("%s: endpoint %s does not answer over %s; ejected until it does%s", e.Rotation.Key, e.Addr, protocol, note)
		} else if v := glog.V(3); v {
			v.Infof("%s: endpoint %s does not answer over %s", e.Rotation.Key, e.Addr, protocol)
		}
	}
}

// Answered notes that the endpoint is well.
func (e *Endpoint) Answered(protocol registry.Protocol) {
	if e.stats().health[protocol].Answered() {
		e.readmit(protocol)
	}
}

// Outlasted notes that a UDP client has sent the endpoint something, and was not refused: see [health.Health.Outlasted].
func (e *Endpoint) Outlasted(t *health.Trial, enough time.Duration) {
	if h := e.healthOf(registry.UDP); h != nil && h.Outlasted(t, enough) {
		e.readmit(registry.UDP)
	}
}

// readmit has clients given the endpoint again, and says so.
func (e *Endpoint) readmit(protocol registry.Protocol) {
	e.follow(protocol)
	if note, ok := e.Rotation.rules.outages.Allow(outage{e, protocol, true}); ok {
		glog.Infof("%s: endpoint %s answers again over %s%s", e.Rotation.Key, e.Addr, protocol, note)
	} else if v := glog.V(3); v {
		v.Infof("%s: endpoint %s answers again over %s", e.Rotation.Key, e.Addr, protocol)
	}
}

// checkState returns what checks over a protocol have found; the zero value and false where there are none.
func (e *Endpoint) checkState(protocol registry.Protocol) (s checks.State, isChecked bool) {
	if x := e.known.Load(); x != nil {
		if t := x.checks[protocol].Load(); t != nil {
			return t.State(), true
		}
	}
	return checks.State{}, false
}

// load is how many clients of this node the endpoint has, those included that are connecting to it, and without those it has finished with. One
// that is ejected or full has most.
func (e *Endpoint) load(protocol registry.Protocol) int64 {
	x := e.known.Load()
	switch {
	case e.isExcluded():
		return math.MaxInt64
	case x == nil:
		return 0
	}
	until, load := e.returns(protocol), x.taken.Load()
	if until != 0 && monotonic.Now() < until || load >= e.places() {
		return math.MaxInt64
	}
	return load
}
