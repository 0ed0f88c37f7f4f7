package statuspage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/config"
	"kubeproxy/registry"
)

// maxElectionLines is how many replicas, and how many keys, the row of an election lists.
const maxElectionLines = 8

// An electionRow is one key that elects endpoints, as it is shown.
type electionRow struct {
	Key, Services string
	Holder        string // "": nobody
	Since         string
	Paused        bool
	Unconfirmed   bool
	Out           []string // replicas that are left out, and why
	MoreOut       int
	Rejected      []string // keys that cannot be used, and why
	MoreRejected  int
	Count         uint64
	Changes       []string // the last ones, the newest first
}

func newElectionRow(e *config.Election, now time.Time) electionRow {
	row := electionRow{Key: e.Key, Services: e.Services, Holder: e.Holder, Since: heldSince(e, now), Paused: e.Paused, Unconfirmed: e.Unconfirmed, Count: e.Count}
	row.Out, row.Rejected = e.Out[:min(len(e.Out), maxElectionLines)], e.Rejected[:min(len(e.Rejected), maxElectionLines)]
	row.MoreOut, row.MoreRejected = e.LeftOut-len(row.Out), e.Unusable-len(row.Rejected)
	for _, c := range slices.Backward(e.Changes) {
		holder := c.Holder
		if holder == "" {
			holder = "nobody"
		}
		row.Changes = append(row.Changes, fmt.Sprintf("%s %s, revision %d", format.Clock(c.At, now), holder, c.Revision))
	}
	return row
}

// heldSince says from when on a key has the holder that it has. All that is known has a last change.
func heldSince(e *config.Election, now time.Time) string {
	if len(e.Changes) == 0 {
		return "an unknown time"
	}
	last := e.Changes[len(e.Changes)-1]
	return fmt.Sprintf("%s (revision %d)", format.Clock(last.At, now), last.Revision)
}

// eachElection calls do for each key that elects endpoints.
func (s *snapshot) eachElection(do func(*config.Election)) {
	for i := range s.sources {
		for j := range s.sources[i].Elections {
			do(&s.sources[i].Elections[j])
		}
	}
}

// unheldNames are the services whose keys nobody holds.
func (s *snapshot) unheldNames() map[registry.Name]bool {
	unheld := make(map[registry.Name]bool)
	s.eachElection(func(e *config.Election) {
		for _, name := range e.Elects {
			unheld[name] = unheld[name] || !e.HasHolder()
		}
	})
	return unheld
}

// whyUnheld says what a key lacks.
func whyUnheld(e *config.Election, now time.Time) string {
	if e.Unconfirmed {
		return fmt.Sprintf("Etcd is away, and %s, which has key %s, does not confirm that it is the primary", e.Holder, e.Key)
	}
	return fmt.Sprintf("Nobody holds key %s since %s", e.Key, heldSince(e, now))
}

// unheldKeys are those that nobody holds, or whose holder is not confirmed. Services of replicas may have endpoints all the same.
func (s *snapshot) unheldKeys() (all []problem) {
	empty := make(map[registry.Name]bool)
	for i := range s.ports {
		if row := &s.ports[i]; row.unheld && row.isEmpty() {
			empty[row.Owner.Name] = true
		}
	}
	s.eachElection(func(e *config.Election) {
		if e.HasHolder() {
			return
		}
		about := problem{Services: e.Elects, Link: toElections}
		var without []string
		for _, name := range e.Elects {
			if empty[name] {
				without = append(without, name.Label())
			}
		}
		about.Text = fmt.Sprintf("%s: clients of %s are refused or wait. Look at the candidates and at what elects them.", whyUnheld(e, s.at), strings.Join(without, ", "))
		if len(without) == 0 {
			about.Severity = watchIt
			about.Text = fmt.Sprintf("%s; %s has endpoints all the same. Look at the candidates and at what elects them.", whyUnheld(e, s.at), e.Services)
		}
		all = append(all, about)
	})
	return all
}

// unusableKeys are those of clusters whose newest value cannot be used.
func (s *snapshot) unusableKeys() (all []problem) {
	s.eachElection(func(e *config.Election) {
		for _, line := range e.Rejected {
			all = append(all, problem{Services: e.Elects, Link: toElections, Severity: changesFail,
				Text: fmt.Sprintf("A key that elects endpoints cannot be used: %s. What it said before stays, if anything: look at the member that writes it.", cut(line))})
		}
		if more := e.Unusable - len(e.Rejected); more > 0 {
			all = append(all, problem{Services: e.Elects, Link: toElections, Severity: changesFail, Text: fmt.Sprintf("%s more keys beside %s cannot be used.", format.Whole(more), e.Key)})
		}
	})
	return all
}
