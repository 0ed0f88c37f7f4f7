package statuspage

import (
	"fmt"
	"slices"
	"strings"

	"kubeproxy/cmd/internal/statuspage/elections"
	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/config"
	"kubeproxy/registry"
)

// eachElection calls do for each key that elects endpoints.
func (s *snapshot) eachElection(do func(*config.Election)) {
	for i := range s.sources {
		for j := range s.sources[i].Elections {
			do(&s.sources[i].Elections[j])
		}
	}
}

// elections are the keys that elect endpoints, by name.
func (s *snapshot) elections() map[string]*config.Election {
	all := make(map[string]*config.Election)
	s.eachElection(func(e *config.Election) { all[e.Key] = e })
	return all
}

// unheldKeys are those that nobody holds, or whose holder is not confirmed. Services of replicas may have endpoints all the same.
func (s *snapshot) unheldKeys() (all []problem) {
	empty := make(map[string][]registry.Name)
	for i := range s.ports {
		if row := &s.ports[i]; row.unheld && !slices.Contains(empty[row.key], row.Owner.Name) {
			empty[row.key] = append(empty[row.key], row.Owner.Name)
		}
	}
	s.eachElection(func(e *config.Election) {
		if e.HasHolder() {
			return
		}
		about := problem{Services: slices.Concat(e.Elects, empty[e.Key]), Link: toElections}
		var without []string
		for _, name := range empty[e.Key][:min(len(empty[e.Key]), config.MaxElected)] {
			without = append(without, name.Label())
		}
		if more := len(empty[e.Key]) - len(without); more > 0 {
			without = append(without, fmt.Sprintf("%d more", more))
		}
		about.Text = fmt.Sprintf("%s: clients of %s are refused or wait. Look at the candidates and at what elects them.", elections.WhyUnheld(e, s.at), strings.Join(without, ", "))
		if len(without) == 0 {
			about.Severity = watchIt
			about.Text = fmt.Sprintf("%s; %s has endpoints all the same. Look at the candidates and at what elects them.", elections.WhyUnheld(e, s.at), e.Services)
		}
		all = append(all, about)
	})
	return all
}

// electedNobody are the services without endpoints whose keys are held, or not known of: what elects them leaves all candidates out.
func (s *snapshot) electedNobody() (all []problem) {
	for _, row := range s.ports {
		if row.key == "" || row.unheld {
			continue
		}
		about := problem{Services: []registry.Name{row.Owner.Name}, Link: toElections}
		came := "clients of %s were turned away"
		if !row.unserved {
			about.Severity, came = watchIt, "the next client of %s will be turned away"
		}
		about.Text = fmt.Sprintf("Key %s gives %s no endpoints, and "+came+": see at Elections who holds it, and who is left out.", row.key, row.label, row.ID)
		all = append(all, about)
	}
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
