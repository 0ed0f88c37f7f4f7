package rotation

import (
	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Condition says what new clients of a rotation get. The page, the metrics and the alerts all say it from here, so they agree.
type Condition uint8

// The conditions. Of several that hold, the first one counts.
const (
	Served      Condition = iota // an endpoint that is well, as far as is known
	NoEndpoints                  // none: there are none
	ZeroWeight                   // none: all have weight 0
	NotAllowed                   // none: no address of one is allowed
	NoAnswer                     // none, most likely: each endpoint failed the last client that was given it
	ChecksFail                   // an endpoint that fails its checks, since all fail: the checks may be wrong

	NumConditions // how many there are
)

var conditions = [NumConditions]string{
	Served: "served", NoEndpoints: traffic.NoEndpoints.String(), ZeroWeight: traffic.ZeroWeight.String(), NotAllowed: traffic.EndpointNotAllowed.String(),
	NoAnswer: traffic.DialFailed.String(), ChecksFail: "checks_fail",
}

// String gives the condition as metrics spell it: by the reason for which clients are turned away, if they are.
func (c Condition) String() string { return conditions[c] }

// TurnsAway reports whether new clients are given no endpoint.
func (c Condition) TurnsAway() bool { return c == NoEndpoints || c == ZeroWeight || c == NotAllowed }

// condition returns what new clients are given of a set. An endpoint that gets none does not count.
func (r *Rotation) condition(set *endpointSet) Condition {
	offered, unanswered, failing := 0, 0, 0
	for _, e := range set.endpoints {
		if e.isExcluded() {
			continue
		}
		offered++
		switch refuses, failsCheck := e.failures(); {
		case refuses:
			unanswered++
		case failsCheck:
			failing++
		}
	}
	switch {
	case set.len() == 0:
		return NoEndpoints
	case set.isDrained():
		return ZeroWeight
	case set.isAsleep():
		for addr := range set.addrs.All() { // most often only the first
			if r.rules.allows(addr) {
				return Served
			}
		}
		return NotAllowed
	case offered == 0:
		return NotAllowed
	case unanswered == offered:
		return NoAnswer
	case unanswered+failing == offered:
		return ChecksFail
	}
	return Served
}

// Conditions lists all conditions in their order.
func Conditions() []Condition {
	all := make([]Condition, NumConditions)
	for i := range all {
		all[i] = Condition(i)
	}
	return all
}

// noneReady reports whether no endpoint of the set is ready over a protocol, so that those that are not are offered.
func (s *endpointSet) noneReady(protocol registry.Protocol) bool {
	if len(s.endpoints) == 0 {
		return false
	}
	r := s.roster(protocol)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.readmit(monotonic.Now())
	return r.index.nextReady(0) < 0
}
