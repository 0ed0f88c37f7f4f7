package rotation

import (
	"iter"
	"slices"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// A Status tells in numbers how things stand with the endpoints of one port of a service: for all its clients, or for some of them.
type Status struct {
	Service   registry.PortKey
	Endpoints int
	Failing   int              // endpoints that did not answer the last client that was given them, or that fail their checks
	Condition health.Condition // what new clients get; the worst, if not all get the same
	Over      string           // " over tcp" where clients over the other protocol get something else; else ""
	Near      int              // endpoints that clients of the node are given first; 0: all are alike
	Spilling  bool             // each of those fails, so clients are given others
	Standby   bool             // these are backups
	Zones     [2]uint64        // clients that were given an endpoint in the zone of the node, and in another
	Examples  []EndpointStatus // of those that fail, in the order of the record

	clients health.Clients // whose status it is
	parts   []Status       // of some of these clients each; nil: it is that of all
}

// Of returns the status for clients of a port: over its protocol, and given endpoints on the node only if they are local.
func (s Status) Of(protocol registry.Protocol, local bool) Status {
	i := slices.IndexFunc(s.parts, func(part Status) bool { return part.clients == health.ClientsOf(protocol, local) })
	if i < 0 {
		return s
	}
	part := s.parts[i]
	for _, other := range s.parts {
		if other.clients == health.ClientsOf(registry.UDP-protocol, local) && other.Condition != part.Condition {
			part.Over = " over " + protocol.String()
		}
	}
	return part
}

// maxExamples bounds Examples: a record may list tens of thousands of endpoints that do not answer.
const maxExamples = 8

// Status tells how things stand with the rotation. It costs little for one that has had no client at this node.
func (r *Rotation) Status() Status { return r.status(r.set.Load(), r.offeredTo()) }

// status is Status of some clients.
func (r *Rotation) status(set *endpointSet, of health.Clients) Status {
	all := Status{Service: r.Key, Endpoints: set.len(), clients: of}
	if z := set.zones; z != nil {
		all.Zones = [2]uint64{z.given[0].Load(), z.given[1].Load()}
	}
	well, others := 0, 0 // of the near ones, and of those that are no backups
	for i, e := range set.endpoints {
		unanswered, failsCheck := e.failures(of)
		isWell := !unanswered && !failsCheck && !e.isExcluded()
		if isWell && !e.isBackup() {
			others++
		}
		if set.nearness != nil && set.nearness[i] == 0 {
			if all.Near++; isWell {
				well++
			}
		}
		if !unanswered && !failsCheck {
			continue
		}
		if all.Failing++; all.Failing <= maxExamples {
			all.Examples = append(all.Examples, e.status(of))
		}
	}
	for protocol, local := range of.Each() {
		if one := health.ClientsOf(protocol, local); one != of {
			part := r.status(set, one)
			all.parts = append(all.parts, part)
			all.Condition = all.Condition.Worse(part.Condition)
			all.Spilling, all.Standby = all.Spilling || part.Spilling, all.Standby || part.Standby
			continue
		}
		all.Condition = r.condition(set, protocol, local)
		all.Spilling = all.Near > 0 && well == 0 && all.Condition == health.Served
		all.Standby = all.Spilling && others == 0
	}
	return all
}

// EndpointStatus yields how things stand with each endpoint, in the order of the record; n is how many there are. The rotation goes on
// with the one at position next.
func (r *Rotation) EndpointStatus() (each iter.Seq[EndpointStatus], n, next int) {
	set := r.set.Load()
	if n = set.len(); set.isAsleep() {
		next = int(set.start)
	} else if n > 0 {
		first := set.seenBy(0).tiers[0]
		next = slices.Index(set.endpoints, first.endpoints[first.turn(first.cursor.Load())])
	}
	return func(yield func(EndpointStatus) bool) {
		for _, e := range set.endpoints {
			if !yield(e.Status()) {
				return
			}
		}
		i, weights := 0, set.weights.Of(set.addrs)
		for addr := range set.addrs.All() { // of a set that sleeps: it has had no client
			one := EndpointStatus{Service: r.Key, Addr: addr, Weight: 1, Place: set.places.At(i)}
			if weights != nil {
				one.Weight = weights[i]
			}
			if i++; !yield(one) {
				return
			}
		}
	}, n, next
}

// failures reports whether the last attempt of a client to reach the endpoint failed, and whether its checks fail, over a protocol of some clients.
func (e *Endpoint) failures(of health.Clients) (unanswered, failsCheck bool) {
	x := e.known.Load()
	if x == nil {
		return false, false
	}
	for protocol := range of.Each() {
		h := &x.health[protocol]
		unanswered, failsCheck = unanswered || h.EjectedUntil() != 0, failsCheck || h.FailsCheck()
	}
	return unanswered, failsCheck
}

// Status tells how things stand with one endpoint.
func (e *Endpoint) Status() EndpointStatus { return e.status(e.Rotation.offeredTo()) }

// status is Status as some clients find it.
func (e *Endpoint) status(of health.Clients) EndpointStatus {
	s := EndpointStatus{Service: e.Rotation.Key, Addr: e.Addr, Weight: int(e.weight.Load()), Place: e.place()}
	x := e.known.Load()
	if x == nil {
		return s
	}
	s.Active, s.Connections, s.Failures = x.active()-x.dialing.Load(), x.connections.Load(), x.failures.Load()
	wall := func(t time.Duration) time.Time { return time.Now().Add(t - monotonic.Now()) }
	for protocol := range of.Each() {
		check, isChecked := e.checkState(protocol)
		if s.Checked = s.Checked || isChecked; check.Fails {
			s.CheckError = check.Err
			s.failingSince(check.Since)
		}
		h := &x.health[protocol]
		until := h.EjectedUntil()
		if until == 0 {
			continue
		}
		s.failingSince(wall(h.FailingSince()))
		if at := wall(until); monotonic.Now() < until && at.After(s.EjectedUntil) {
			s.EjectedUntil = at
		}
	}
	return s
}

// failingSince notes since when the endpoint fails in one way.
func (s *EndpointStatus) failingSince(since time.Time) {
	if s.FailingSince.IsZero() || since.Before(s.FailingSince) {
		s.FailingSince = since
	}
}

// An EndpointStatus tells how things stand with one endpoint of one port of a service.
type EndpointStatus struct {
	Service      registry.PortKey
	Addr         registry.Addr
	Weight       int // its share of clients
	Place        registry.Place
	Active       int64     // connections and sessions now
	Connections  uint64    // and since it came, those that have ended included
	Failures     uint64    // attempts that did not reach it
	EjectedUntil time.Time // it is ejected until then, over one protocol or both; zero when it is not
	FailingSince time.Time // the first failed attempt since it answered last, or when its checks began to fail; zero when it is well, as far as is known
	CheckError   string    // of the last check, if checks fail
	Checked      bool      // it is checked while no client comes, over one protocol or both
}
