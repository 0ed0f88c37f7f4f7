package rotation

import (
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Condition says what new clients of a rotation get. The page, the metrics and the alerts all say it from here, so they agree.
type Condition uint8

// The conditions. Of several that hold, the first one counts. Those from NoAnswer to OwnListener are what the last clients met, and last
// until another client comes.
const (
	Served      Condition = iota // an endpoint that is well, as far as is known
	NoEndpoints                  // none: there are none
	ZeroWeight                   // none: all have weight 0
	NotAllowed                   // none: no address of one is allowed
	NoLocal                      // none: the service wants those on the node, and none is there
	NoAnswer                     // none, most likely: each endpoint failed the last client that was given it, or could not be used
	NameFailed                   // the same: the names of all were not resolved, or they could not be used either
	OwnListener                  // the same: all are listeners of the proxy itself
	AllFailed                    // none: all fail their checks, and the service wants clients refused then
	AllFull                      // none that is well: those that are have as many clients as the service allows an endpoint
	ChecksFail                   // an endpoint that fails its checks, since all fail: the checks may be wrong

	NumConditions // how many there are
)

var conditions = [NumConditions]string{
	Served: "served", NoEndpoints: traffic.NoEndpoints.String(), ZeroWeight: traffic.ZeroWeight.String(), NotAllowed: traffic.EndpointNotAllowed.String(), NoLocal: traffic.NoLocalEndpoint.String(),
	AllFull:  traffic.EndpointLimit.String(),
	NoAnswer: traffic.DialFailed.String(), NameFailed: traffic.NameFailed.String(), OwnListener: traffic.OwnListener.String(), AllFailed: traffic.AllFailed.String(), ChecksFail: "checks_fail",
}

// String gives the condition as metrics spell it: by the reason for which clients are turned away, if they are.
func (c Condition) String() string { return conditions[c] }

// TurnsAway reports whether the records, the flags, or the checks give new clients no endpoint.
func (c Condition) TurnsAway() bool {
	return c == NoEndpoints || c == ZeroWeight || c == NotAllowed || c == NoLocal || c == AllFailed
}

// condition returns what new clients are given of a set. An endpoint that gets none does not count.
func (r *Rotation) condition(set *endpointSet) Condition {
	offered, failed, full, refuses := 0, 0, 0, r.terms.Load().Failure.Refuse
	var of [NumConditions]int // how many endpoints a client meets so
	for _, e := range set.endpoints {
		if !e.isExcluded() && !r.isElsewhere(e.place()) {
			offered++
			of[e.condition()]++
			if _, failsCheck := e.failures(); failsCheck {
				failed++
			}
			if e.isFull() {
				full++
			}
		}
	}
	switch {
	case set.len() == 0:
		return NoEndpoints
	case set.isDrained():
		return ZeroWeight
	case set.isAsleep():
		return r.conditionAsleep(set)
	case offered == 0 && r.isLocal():
		return NoLocal
	case offered == 0:
		return NotAllowed
	case failed == offered && refuses:
		return AllFailed
	case of[Served] > 0:
		return Served
	case of[AllFull] > 0, full == offered:
		return AllFull
	case of[ChecksFail] > 0 && !refuses:
		return ChecksFail
	}
	for _, c := range [...]Condition{NoAnswer, NameFailed, NotAllowed} { // of several, that which the client is told
		if of[c] > 0 {
			return c
		}
	}
	return OwnListener
}

// conditionAsleep returns what the first client of a set gets.
func (r *Rotation) conditionAsleep(set *endpointSet) Condition {
	i := 0
	for addr := range set.addrs.All() { // most often only the first
		if r.rules.allows(addr) && !r.isElsewhere(set.places.At(i)) {
			return Served
		}
		i++
	}
	if r.isLocal() { // as TurnsAway says
		return NoLocal
	}
	return NotAllowed
}

// isLocal reports whether the service wants endpoints on the node only, and the node is known.
func (r *Rotation) isLocal() bool { return r.terms.Load().Local && r.rules.Node.Name != "" }

// isElsewhere reports whether an endpoint at a place gets no client because the service wants those on the node.
func (r *Rotation) isElsewhere(at registry.Place) bool { return r.isLocal() && at&registry.OnNode == 0 }

// condition returns what a client of the endpoint gets, as far as is known.
func (e *Endpoint) condition() Condition {
	for protocol := range registry.UDP + 1 {
		if h := e.healthOf(protocol); h != nil {
			switch why, _ := h.Unusable(); why {
			case traffic.NameFailed:
				return NameFailed
			case traffic.EndpointNotAllowed:
				return NotAllowed
			case traffic.OwnListener:
				return OwnListener
			}
		}
	}
	switch refuses, failsCheck := e.failures(); {
	case refuses:
		return NoAnswer
	case failsCheck:
		return ChecksFail
	case e.isFull():
		return AllFull
	}
	return Served
}

// Conditions lists all conditions in their order.
func Conditions() (all []Condition) {
	for c := range NumConditions {
		all = append(all, c)
	}
	return all
}
