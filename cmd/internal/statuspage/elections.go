package statuspage

import "kubeproxy/config"

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
