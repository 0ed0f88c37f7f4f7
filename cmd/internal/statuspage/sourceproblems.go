package statuspage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"kubeproxy/cmd/internal/statuspage/advice"
	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/config"
	"kubeproxy/registry"
)

// staleAfter is how old what is served may be before the page reports it though the source is connected, and the alert KubeProxyStateOld does: lists
// come every 30 s by default, and -config_max_age has no default.
const staleAfter = 2 * time.Minute

func (p *Page) sourcesAway(s *snapshot) (all []problem) {
	if p.node.Stale() {
		since := s.at.Add(-p.node.Age()).Round(time.Minute)
		all = append(all, problem{Severity: changesFail, Text: fmt.Sprintf("The node serves a state that it saved at %s, because no source could be read since its start.", format.Clock(since, s.at))})
	}
	for _, from := range s.sources {
		name := from.title()
		if from.Kept > 0 {
			all = append(all, problem{Severity: watchIt, Text: fmt.Sprintf("Instances of %s are in force that %s does not hold any more: their leases have all ended, and they stay for five minutes. "+
				"The log names the services: look after their kube-proxy register.", format.Plural(from.Kept, "service"), name)})
		}
		if from.Name == filesSource {
			name = "the" + name[len("The"):] // within a sentence
		}
		switch {
		case !from.Connected && !from.Ready:
			about := problem{Text: fmt.Sprintf("Nothing has been read from %s yet: %s. %s.", name, cmp.Or(from.Reason, "it has not answered"), advice.Source(from.Cause))}
			if p.node.Stale() {
				about.Severity = changesFail // what was saved is served
			}
			all = append(all, about)
		case !from.Connected:
			all = append(all, problem{Severity: changesFail, Text: fmt.Sprintf("%s cannot be read since %s: %s. Its records of revision %d stay in force. %s.",
				from.title(), format.Clock(from.Since, s.at), cmp.Or(from.Reason, "it does not answer"), from.Revision, advice.Source(from.Cause))})
		case !from.Ready:
			all = append(all, problem{Severity: watchIt, Text: fmt.Sprintf("The first records of %s are being read; nothing has to be done.", name)})
		case s.at.Sub(from.Current) > staleAfter:
			all = append(all, problem{Severity: changesFail, Text: fmt.Sprintf("What %s holds was last confirmed at %s, though it is connected: check its load, and the log of this node.",
				name, format.Clock(from.Current, s.at))})
		}
	}
	if age := p.node.Age(); p.node.MaxAge > 0 && age > p.node.MaxAge {
		all = append(all, problem{Severity: changesFail, Text: fmt.Sprintf("The node is not ready, so load balancers send no clients: what it serves was last confirmed %v ago, and -config_max_age is %v.",
			age.Round(time.Second), p.node.MaxAge)})
	}
	for i := range all {
		all[i].Link = toSources
	}
	return all
}

// filesSource is the name of the source of files.
const filesSource = "files"

// title names a source at the beginning of a sentence.
func (s *source) title() string {
	if s.Name == filesSource {
		return "The directory of -registry_dir"
	}
	return registry.Label(s.Name)
}

// losses are the sources that hold no services, or have just lost most of them.
func (s *snapshot) losses() (all []problem) {
	services, ready, closed := 0, len(s.sources) > 0, ""
	if s.open == 0 {
		closed = "; no port is open"
	}
	for _, from := range s.sources {
		services += from.Services
		ready = ready && from.Ready
		name, lost := from.title(), from.Loss
		switch missing := lost.Missing(from.Services, s.at); {
		case missing == 0:
		case from.Services == 0:
			all = append(all, problem{Text: fmt.Sprintf("%s holds no service since %s, and held %s before%s. Put the records back; if this is meant, nothing has to be done.",
				name, format.Clock(lost.At, s.at), format.Whole(lost.Held), closed)})
		default:
			all = append(all, problem{Severity: changesFail, Text: fmt.Sprintf("%s lost services at once at %s: %s of %s are missing. Put the records back; if this is meant, the sentence goes after an hour.",
				name, format.Clock(lost.At, s.at), format.Whole(missing), format.Whole(lost.Held))})
		}
	}
	if ready && services == 0 && len(all) == 0 {
		below := ""
		if slices.ContainsFunc(s.sources, func(from source) bool { return from.Name == filesSource }) {
			below = ", below the directory of -registry_dir"
		}
		all = append(all, problem{Severity: watchIt, Text: fmt.Sprintf("The registry holds no service: write a record to %sNAME, and one to %sNAME%s.", registry.SpecsPrefix, registry.EndpointsPrefix, below)})
	}
	for i := range all {
		all[i].Link = toSources
	}
	return all
}

// rejections are the records whose newest value is refused.
func (p *Page) rejections(s *snapshot) (all []problem) {
	for _, from := range s.sources {
		for i, r := range from.Rejections {
			if r.Encrypted && i > 0 && from.Rejections[i-1].Encrypted {
				continue // one sentence for all of them
			}
			about := problem{Link: toSources, Severity: changesFail}
			inForce := "its last good version, if there was one, stays in force"
			if name, ok := serviceOfKey(r.Key); ok {
				about.Services, about.Link = []registry.Name{name}, toService(name)
				if r.Kind == registry.KindService {
					if inForce = "its last good version stays in force"; p.node.Proxier.Service(name) == nil {
						inForce = "no earlier version of it is known, so there is no such service"
					}
				}
			}
			do := "Write it anew"
			if r.Encrypted {
				do = "So is all that an API server encrypts"
			} else if r.Unread {
				do = "Make it a file that the user of kube-proxy may read (chmod, chown)"
			}
			about.Text = fmt.Sprintf("The record %s is refused at revision %d: %s. %s; %s.", config.OneLine(r.Key), r.Revision, r.Reason, do, inForce)
			all = append(all, about)
		}
		if more := from.Rejected - len(from.Rejections); more > 0 && len(from.Rejections) > 0 {
			all = append(all, problem{Severity: changesFail, Text: fmt.Sprintf("%s more records of %s are refused; kube-proxy check lists them.", format.Whole(more), registry.Label(from.Name)), Link: toSources})
		}
	}
	return all
}

// oddRecords are the records that are in force though something in them is odd.
func (s *snapshot) oddRecords() (all []problem) {
	for _, from := range s.sources {
		for _, w := range from.Warnings {
			about := problem{Link: toSources, Severity: watchIt}
			if name, ok := serviceOfKey(w.Key); ok {
				about.Services, about.Link = []registry.Name{name}, toService(name)
			}
			and := ""
			if w.More > 0 {
				and = ", and " + format.Plural(w.More, "other warning")
			}
			about.Text = fmt.Sprintf("The record %s is in force, with a warning: %s%s. Correct it; kube-proxy check shows all warnings.", config.OneLine(w.Key), w.Text, and)
			all = append(all, about)
		}
		if more := from.Warned - len(from.Warnings); more > 0 && len(from.Warnings) > 0 {
			all = append(all, problem{Severity: watchIt, Text: fmt.Sprintf("%s more records of %s have warnings; kube-proxy check lists them.", format.Whole(more), registry.Label(from.Name)), Link: toSources})
		}
	}
	return all
}

// serviceOfKey returns the service that a record is about. The key of a slice does not say.
func serviceOfKey(key string) (name registry.Name, ok bool) {
	k, err := registry.ParseKey(key)
	return k.Name, err == nil && k.Kind != registry.KindEndpointSlice
}
