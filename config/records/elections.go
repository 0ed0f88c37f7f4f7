package records

import (
	"maps"
	"slices"
	"strings"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// changes are the last changes of whom a key names, the oldest first.
type changes []config.HolderChange

func (c *changes) add(name string, revision int64, at time.Time) {
	if *c = append(*c, config.HolderChange{Holder: config.OneLine(name), Revision: revision, At: at}); len(*c) > config.MaxHolderChanges {
		*c = slices.Clone((*c)[1:])
	}
}

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
		shown := config.Election{Key: config.OneLine(key), Holder: config.OneLine(e.holder), Services: e.forServices(), Changes: slices.Clone(e.changes)}
		if c := e.cluster; c != nil {
			shown.Key += leaderKey
			shown.Paused, shown.Rejected, shown.API, shown.TTL = c.Paused, e.rejected(), c.API(), time.Duration(c.TTL)*time.Second
			shown.Out = s.leftOut(e)
		}
		list = append(list, shown)
	}
	return list, true
}

// leftOut says which replicas of a cluster do not serve those who read, and why.
func (s *State) leftOut(e *election) (all []string) {
	for _, name := range slices.SortedFunc(maps.Keys(e.services), registry.Name.Compare) {
		service := s.record(registry.SpecsPrefix, name).service
		if service == nil || !service.Terms().Patroni.Replicas {
			continue
		}
		seats, _ := e.cluster.Serving(&service.Terms().Patroni)
		for _, seat := range seats {
			if seat.Out != "" && seat.Name != e.cluster.Leader {
				all = append(all, config.OneLine(strings.Join([]string{name.String(), seat.Name, seat.Out}, ": ")))
			}
		}
	}
	return all
}
