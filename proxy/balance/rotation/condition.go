package rotation

import (
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// condition returns what new clients are given of a set. An endpoint that gets none does not count.
func (r *Rotation) condition(set *endpointSet) health.Condition {
	offered, failed, full, refuses := 0, 0, 0, r.terms.Load().Failure.Refuse
	var of [health.NumConditions]int // how many endpoints a client meets so
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
		return health.NoEndpoints
	case set.isDrained():
		return health.ZeroWeight
	case set.isAsleep():
		return r.conditionAsleep(set)
	case offered == 0 && r.isLocal():
		return health.NoLocal
	case offered == 0:
		return health.NotAllowed
	case failed == offered && refuses:
		return health.AllFailed
	case of[health.Served] > 0:
		return health.Served
	case of[health.AllFull] > 0, full == offered:
		return health.AllFull
	case of[health.ChecksFail] > 0 && !refuses:
		return health.ChecksFail
	}
	for _, c := range [...]health.Condition{health.NoAnswer, health.NameFailed, health.NotAllowed} { // of several, that which the client is told
		if of[c] > 0 {
			return c
		}
	}
	return health.OwnListener
}

// conditionAsleep returns what the first client of a set gets.
func (r *Rotation) conditionAsleep(set *endpointSet) health.Condition {
	i := 0
	for addr := range set.addrs.All() { // most often only the first
		if r.rules.allows(addr) && !r.isElsewhere(set.places.At(i)) {
			return health.Served
		}
		i++
	}
	if r.isLocal() { // as TurnsAway says
		return health.NoLocal
	}
	return health.NotAllowed
}

// isLocal reports whether the service wants endpoints on the node only, and the node is known.
func (r *Rotation) isLocal() bool { return r.terms.Load().Local && r.rules.Node.Name != "" }

// isElsewhere reports whether an endpoint at a place gets no client because the service wants those on the node.
func (r *Rotation) isElsewhere(at registry.Place) bool { return r.isLocal() && at&registry.OnNode == 0 }

// condition returns what a client of the endpoint gets, as far as is known.
func (e *Endpoint) condition() health.Condition {
	for protocol := range registry.UDP + 1 {
		if h := e.healthOf(protocol); h != nil {
			switch why, _ := h.Unusable(); why {
			case traffic.NameFailed:
				return health.NameFailed
			case traffic.EndpointNotAllowed:
				return health.NotAllowed
			case traffic.OwnListener:
				return health.OwnListener
			}
		}
	}
	switch refuses, failsCheck := e.failures(); {
	case refuses:
		return health.NoAnswer
	case failsCheck:
		return health.ChecksFail
	case e.isFull():
		return health.AllFull
	}
	return health.Served
}

// Conditions lists all conditions in their order.
func Conditions() (all []health.Condition) {
	for c := range health.NumConditions {
		all = append(all, c)
	}
	return all
}
