package records

import (
	"maps"
	"slices"
	"strings"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

// maxElections bounds what operators are shown.
const maxElections = config.MaxRejections

// describeElections lists what elects endpoints, if that has changed since the last time. First come the clusters whose primaries are to be asked, all of
// them: who asks finds them here.
func (s *State) describeElections() (list []config.Election, changed bool) {
	if !s.elected {
		return nil, false
	}
	s.elected = false
	var asked, others []*election
	for _, key := range slices.Sorted(maps.Keys(s.elections)) {
		switch e := s.elections[key]; {
		case !e.known:
		case s.asks(e):
			asked = append(asked, e)
		default:
			others = append(others, e)
		}
	}
	for _, e := range append(asked, others[:min(len(others), max(maxElections-len(asked), 0))]...) {
		shown := config.Election{Key: config.OneLine(e.key), Holder: config.OneLine(e.holder), Services: e.forServices(), Elects: e.names(), Changes: slices.Clone(e.changes.last), Count: e.changes.count}
		if c := e.cluster; c != nil {
			shown.Key += patroni.LeaderKey
			shown.Paused, shown.API, shown.TTL = c.Paused, c.API(), time.Duration(c.TTL)*time.Second
			shown.Out, shown.LeftOut = s.leftOut(e)
			shown.Rejected, shown.Unusable = e.rejected()
		}
		list = append(list, shown)
	}
	return list, true
}

// asks reports whether the primary of a cluster is to be asked, by a service.
func (s *State) asks(e *election) bool {
	for name := range e.services {
		if service := s.record(registry.SpecsPrefix, name).service; service != nil && service.Terms().Patroni.AsksPrimary() {
			return true
		}
	}
	return false
}

// leftOut says which replicas of a cluster do not serve those who read, and why: the first ones, and how many there are.
func (s *State) leftOut(e *election) (first []string, n int) {
	for _, name := range slices.SortedFunc(maps.Keys(e.services), registry.Name.Compare) {
		service := s.record(registry.SpecsPrefix, name).service
		if service == nil || !service.Terms().Patroni.Replicas {
			continue
		}
		seats, _ := e.cluster.Serving(&service.Terms().Patroni)
		for _, seat := range seats {
			if seat.Out == "" || seat.Name == e.cluster.Leader {
				continue
			}
			if n++; n <= config.MaxElected {
				first = append(first, config.OneLine(strings.Join([]string{name.String(), seat.Name, seat.Out}, ": ")))
			}
		}
	}
	return first, n
}
