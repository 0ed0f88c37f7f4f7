package records

import (
	"maps"
	"slices"
	"strings"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// maxElections bounds what operators are shown.
const maxElections = config.MaxRejections

// describeElections lists what elects endpoints, if that has changed since the last time.
func (s *State) describeElections() (list []config.Election, changed bool) {
	if !s.elected {
		return nil, false
	}
	s.elected = false
	for _, key := range slices.Sorted(maps.Keys(s.elections)) {
		e := s.elections[key]
		if !e.known || len(list) == maxElections {
			continue
		}
		shown := config.Election{Key: config.OneLine(key), Holder: config.OneLine(e.holder), Services: e.forServices(), Elects: e.names(), Changes: slices.Clone(e.changes.last), Count: e.changes.count}
		if c := e.cluster; c != nil {
			shown.Key += leaderKey
			shown.Paused, shown.API, shown.TTL = c.Paused, c.API(), time.Duration(c.TTL)*time.Second
			shown.Out, shown.LeftOut = s.leftOut(e)
			shown.Rejected, shown.Unusable = e.rejected()
		}
		list = append(list, shown)
	}
	return list, true
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
