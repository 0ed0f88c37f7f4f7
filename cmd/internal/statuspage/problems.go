package statuspage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kubeproxy/cmd/internal/statuspage/advice"
	"kubeproxy/cmd/internal/statuspage/elections"
	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/config"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A problem is one sentence about what is wrong, which names it and says what to do. It does not change while the problem
// stays the same: a screen reader reads it aloud each time that it does.
type problem struct {
	Text     string
	Services []registry.Name // that it is about; none: the node
	Link     link            // where to look; zero for nowhere
	Severity severity
}

// A severity says who feels a problem.
type severity uint8

const (
	clientsFail severity = iota // clients are turned away, or there is nothing to serve them with
	changesFail                 // clients are served, and a change is not in force
	watchIt                     // clients are served, and nothing is missing yet
)

// A link leads to a page, or to a part of one.
type link struct{ Href, Text string }

var (
	toSources   = link{"/#sources", "Sources"}
	toElections = link{"/#elections", "Elections"}
	toLimits    = link{"/#limits", "Limits"}
	toProblems  = link{"/?show=problems", "Services with problems"}
)

func toService(name registry.Name) link { return link{serviceHref(name), name.Label()} }

// maxProblems is how many problems of one kind are listed.
const maxProblems = 8

// problems lists what is wrong with the node, the worst first, and of one severity by kind. The page of a service picks from all; the others show what
// is listed, where a kind is shortened.
func (p *Page) problems(s *snapshot) (all, listed []problem) {
	switch {
	case p.node.Stopping():
		all = append(all, problem{Text: "The node was told to stop: it accepts no new clients, and waits for its connections to finish (-drain_timeout)."})
	case p.node.Leaving():
		all = append(all, problem{Text: "The node was told to stop: it is not ready, and accepts new clients until the end of -stop_grace."})
	}
	if err := p.node.RoutesMissing(); err != nil {
		all = append(all, problem{Text: "The node does not answer for all ranges of -service_cidr, so services at their addresses get no clients: " + cut(err.Error()) + "."})
	}
	if err := p.node.Live(); err != nil {
		all = append(all, problem{Text: "The node makes no progress: " + err.Error() + ". Restart kube-proxy if this lasts."})
	}
	listed = slices.Clone(all)
	for _, kind := range [][]problem{
		s.drainedNode(),
		p.failedUpgrade(s), p.sourcesAway(s), s.losses(), s.conditions(), s.unheldKeys(), s.electedNobody(), s.unservedServices(), s.refusals(), s.closedPorts(), s.conflicts(), p.healthPorts(), p.rejections(s), s.unusableKeys(), s.silentEndpoints(), p.overdueChecks(), p.unusedKernel(), s.nearLimits(),
		s.oddRecords(),
	} {
		worstFirst(kind)
		all, listed = append(all, kind...), append(listed, shorten(kind)...)
	}
	empty, sum := s.emptyServices()
	all, listed = append(all, empty...), append(listed, sum...)
	worstFirst(all)
	worstFirst(listed)
	return all, listed
}

func worstFirst(all []problem) {
	slices.SortStableFunc(all, func(a, b problem) int { return cmp.Compare(a.Severity, b.Severity) })
}

// drainedNode is that an operator has made the node not ready.
func (s *snapshot) drainedNode() []problem {
	if len(s.overrides) == 0 || !s.overrides[0].IsOfNode() {
		return nil
	}
	return []problem{{Severity: watchIt, Text: fmt.Sprintf("The node was %s: it is not ready, and serves the clients that come. kube-proxy drain-node -undo ends that.",
		format.Override(&s.overrides[0], s.at))}}
}

// giveWeight says what to do about a service whose endpoints have weight 0. The word of an operator wins over a weight in the record.
func (s *snapshot) giveWeight(service registry.Name) string {
	for _, o := range s.overrides {
		if o.Service == service && (o.Word != balance.Weigh || o.Weight == 0) {
			return fmt.Sprintf("an operator took %s out, and kube-proxy enable %s %s ends that", registry.Label(o.Addr.String()), service.Label(), registry.Label(o.Addr.String()))
		}
	}
	return "give one a weight"
}

// failedUpgrade is a reload after which the flags and the program of before are in force, which systemctl reload does not say.
func (p *Page) failedUpgrade(s *snapshot) []problem {
	if p.node.UpgradeFailure == nil {
		return nil
	}
	at, err := p.node.UpgradeFailure()
	if err == nil {
		return nil
	}
	return []problem{{Severity: changesFail, Text: fmt.Sprintf("A reload failed at %s: the successor did not take over (%s). The flags and the program of before stay in force. "+
		"Correct what the log says, and reload again.", format.Clock(at, s.at), cut(err.Error()))}}
}

// shorten lists at most maxProblems of a kind, whose worst come first, and says how many more there are.
func shorten(kind []problem) []problem {
	if len(kind) <= maxProblems {
		return kind
	}
	more := problem{Text: fmt.Sprintf("There are %s more problems of this kind.", format.Whole(len(kind)-maxProblems+1)), Link: toProblems, Severity: kind[maxProblems-1].Severity}
	return append(kind[:maxProblems-1:maxProblems-1], more)
}

// unservedServices are those without endpoints whose clients came in vain.
func (s *snapshot) unservedServices() (all []problem) {
	for _, row := range s.ports {
		if row.unserved && row.isEmpty() && row.key == "" {
			all = append(all, problem{
				Text: fmt.Sprintf("%s has no endpoints, and clients of %s were turned away: write endpoints, or delete the service.",
					row.label, row.ID),
				Services: []registry.Name{row.Owner.Name}, Link: toService(row.Owner.Name),
			})
		}
	}
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

// emptyServices are the other ones without endpoints, and the same in one sentence: somewhere, such services are how it is meant.
func (s *snapshot) emptyServices() (all, sum []problem) {
	var first *port
	for i := range s.ports {
		row := &s.ports[i]
		if !row.isEmpty() || row.unserved || row.key != "" {
			continue
		}
		if first == nil {
			first = row
		}
		all = append(all, problem{
			Text:     fmt.Sprintf("%s has no endpoints, and the next client of %s will be turned away: write endpoints, or delete the service.", row.label, row.ID),
			Services: []registry.Name{row.Owner.Name}, Link: toService(row.Owner.Name), Severity: watchIt,
		})
	}
	if len(all) < 2 {
		return all, all
	}
	return all, []problem{{
		Text: fmt.Sprintf("%s ports have no endpoints, such as %s of %s, and their next clients will be turned away: write endpoints, or delete the services.",
			format.Whole(len(all)), first.ID, first.label),
		Link: link{"/?show=empty", "Services without endpoints"}, Severity: watchIt,
	}}
}

// namesOf lists the services of ports.
func namesOf(keys []registry.PortKey) (names []registry.Name) {
	for _, k := range keys {
		names = append(names, k.Name)
	}
	return names
}

func (s *snapshot) closedPorts() (all []problem) {
	for _, row := range s.ports {
		about := problem{Link: toProblems}
		switch {
		case row.Err == nil || errors.Is(row.Err, proxy.ErrOpening):
			continue
		case row.Refused && len(row.Waiting) > 0:
			about.Services, about.Link = namesOf(row.Waiting), toService(row.Waiting[0].Name)
			about.Text = fmt.Sprintf("%s may not have %s: %v. Give it another port, or change the flag.", row.label, row.ID, row.Err)
		default:
			about.Services, about.Link = []registry.Name{row.Owner.Name}, toService(row.Owner.Name)
			about.Text = fmt.Sprintf("%s of %s is not open: %v. %s. It is tried again.", row.ID, row.label, row.Err, advice.Open(row.Err))
		}
		all = append(all, about)
	}
	return all
}

func (s *snapshot) conflicts() (all []problem) {
	for _, row := range s.ports {
		if row.Refused || len(row.Waiting) == 0 {
			continue
		}
		first := row.Waiting[0]
		waits := label(first) + " waits"
		if n := len(row.Waiting); n > 1 {
			waits = fmt.Sprintf("%s and %d more wait", label(first), n-1)
		}
		all = append(all, problem{
			Text:     fmt.Sprintf("%s for %s, which %s has: give one of them another port.", waits, row.ID, row.label),
			Services: append(namesOf(row.Waiting), row.Owner.Name), Link: toService(first.Name), Severity: changesFail,
		})
	}
	return all
}

// conditions are the services whose clients are given no endpoint, or one that fails. Those without endpoints are others.
func (s *snapshot) conditions() (all []problem) {
	said := make(map[registry.PortKey]health.Condition) // the last
	for _, row := range s.ports {
		about := problem{Services: []registry.Name{row.Owner.Name}, Link: toService(row.Owner.Name)}
		if c := row.rotation.Condition; c == health.ChecksFail || c == health.AllFull && !row.overEndpoints() || c.TurnsAway() && !row.unserved {
			about.Severity = watchIt
		}
		refused := fmt.Sprintf("so new clients of %s are refused", row.ID)
		switch row.rotation.Condition {
		case health.ZeroWeight:
			about.Text = fmt.Sprintf("All endpoints of %s have weight 0, %s: %s.", row.label, refused, s.giveWeight(row.Owner.Name))
		case health.AllFailed:
			_, since := row.example(s.at, true)
			about.Text = fmt.Sprintf("All endpoints of %s fail their checks%s%s, %s (kube-proxy/all-failed): repair the endpoints, or correct the check.", row.label, row.rotation.Over, since, refused)
		case health.AllFull:
			about.Text = fmt.Sprintf("The endpoints of %s that are well have as many clients as its record allows (kube-proxy/max-connections-per-endpoint), so new clients of %s wait or are refused: add endpoints, or raise the limit.", row.label, row.ID)
		case health.NoLocal:
			if row.unserved { // else it is as meant: load balancers send clients to other nodes
				about.Text = fmt.Sprintf("The traffic policy of %s is Local, and it has no endpoint on this node, %s: send its clients to nodes that have one.", row.label, refused)
			}
		case health.NotAllowed:
			about.Text = fmt.Sprintf("No endpoint of %s is at an address that is allowed, %s: write other endpoints, or change -allowed_endpoints.", row.label, refused)
		case health.NameFailed:
			about.Text = fmt.Sprintf("The names of all endpoints of %s are not resolved, %s: correct the names, or /etc/resolv.conf of this node.", row.label, refused)
		case health.OwnListener:
			about.Text = fmt.Sprintf("All endpoints of %s are ports of this node, %s: write other endpoints.", row.label, refused)
		case health.NoAnswer:
			first, since := row.example(s.at, false)
			about.Text = fmt.Sprintf("No endpoint of %s answers%s%s: %s %s, or write other endpoints.%s", row.label, row.rotation.Over, since, advice.Mend(first), advice.OneOf(row.rotation.Endpoints), advice.UntilTried(first))
		case health.ChecksFail:
			_, since := row.example(s.at, true)
			about.Text = fmt.Sprintf("All endpoints of %s fail their checks%s%s, so clients are given all of them: repair the endpoints; if clients are served, correct the check.", row.label, row.rotation.Over, since)
		}
		if about.Text != "" && (row.rotation.Condition.TurnsAway() || said[row.Owner] != row.rotation.Condition) {
			said[row.Owner] = row.rotation.Condition
			all = append(all, about)
		}
	}
	return all
}

// refusals are the services whose clients were turned away by a limit, or for want of a header.
func (s *snapshot) refusals() (all []problem) {
	said := make(map[string]bool)
	for _, row := range s.ports {
		for _, r := range row.refusals {
			what := "Clients of %s over tcp were turned away"
			if row.ID.Protocol == registry.UDP { // also those of clients that have a session, and of endpoints
				what = "Datagrams of %s were dropped"
			}
			text := fmt.Sprintf(what+" in the last five minutes: %s.", row.label, r.Text)
			if said[text] || r.Code == endpointLimit && row.rotation.Condition == health.AllFull { // which conditions names
				continue
			}
			said[text] = true
			about := problem{Text: text, Services: []registry.Name{row.Owner.Name}, Link: toService(row.Owner.Name)}
			if r.OthersServed {
				about.Severity = watchIt
			}
			all = append(all, about)
		}
	}
	return all
}

var endpointLimit = traffic.EndpointLimit.String()

// overEndpoints reports whether clients were turned away because all endpoints were full.
func (r *port) overEndpoints() bool {
	return slices.ContainsFunc(r.refusals, func(why advice.Refusal) bool { return why.Code == endpointLimit })
}

// example is an endpoint that fails, or one that fails its checks, and since when and why, in parentheses. There is none when it has just recovered.
func (r *port) example(now time.Time, check bool) (e rotation.EndpointStatus, since string) {
	if len(r.rotation.Examples) == 0 {
		return e, ""
	}
	i := slices.IndexFunc(r.rotation.Examples, func(e rotation.EndpointStatus) bool { return !check || e.CheckError != "" })
	e = r.rotation.Examples[max(i, 0)]
	return e, fmt.Sprintf(" (%s since %s%s)", registry.Label(e.Addr.String()), format.Clock(e.FailingSince, now), checkError(e, ": "))
}

// checkError is why the last check of an endpoint failed, after a separator; "" if its checks do not fail.
func checkError(e rotation.EndpointStatus, separator string) string {
	if e.CheckError == "" {
		return ""
	}
	return separator + cut(e.CheckError)
}

// silentEndpoints are those of services of which others answer.
func (s *snapshot) silentEndpoints() (all []problem) {
	seen := make(map[registry.PortKey]bool)
	for _, row := range s.ports {
		n := row.rotation.Failing
		if n == 0 || len(row.rotation.Examples) == 0 || row.rotation.Condition != health.Served || seen[row.Owner] {
			continue
		}
		seen[row.Owner] = true
		first := row.rotation.Examples[0]
		if row.rotation.Spilling {
			text := fmt.Sprintf("No endpoint of %s near this node answers, so clients are given others: %s %s.%s",
				row.label, advice.Mend(first), advice.OneOf(row.rotation.Near), advice.UntilTried(first))
			if row.rotation.Standby {
				text = fmt.Sprintf("No endpoint of %s but backups answers, so clients are given those: %s %s.%s",
					row.label, advice.Mend(first), advice.OneOf(row.rotation.Near), advice.UntilTried(first))
			}
			all = append(all, problem{Severity: watchIt, Text: text, Services: []registry.Name{row.Owner.Name}, Link: toService(row.Owner.Name)})
			continue
		}
		addr, since := registry.Label(first.Addr.String()), format.Clock(first.FailingSince, s.at)
		fails, fail := "does not answer", "do not answer"
		if first.CheckError != "" {
			fails, fail = "fails its checks", "fail"
		}
		text := fmt.Sprintf("Endpoint %s of %s %s since %s%s, and clients get another: %s it, or remove it from the record.",
			addr, row.label, fails, since, checkError(first, ", "), advice.Mend(first))
		if n > 1 {
			text = fmt.Sprintf("%d of %d endpoints of %s %s, %s since %s%s: %s them, or remove them from the record.",
				n, row.rotation.Endpoints, row.label, fail, addr, since, checkError(first, ": "), advice.Mend(first))
		}
		text += advice.UntilTried(first)
		all = append(all, problem{Severity: watchIt, Text: text, Services: []registry.Name{row.Owner.Name}, Link: toService(row.Owner.Name)})
	}
	return all
}

// unusedKernel is what keeps the kernel from carrying what -kernel=auto asks for. Its clients are served all the same.
func (p *Page) unusedKernel() []problem {
	if text := p.node.Proxier.KernelStatus().Complaint(); text != "" {
		return []problem{{Text: text, Severity: watchIt}}
	}
	return nil
}

// overdueChecks are those that had no result for two intervals and a timeout, in one sentence.
func (p *Page) overdueChecks() []problem {
	o := p.node.Overdue()
	if o.Number == 0 {
		return nil
	}
	about := problem{Services: []registry.Name{o.Of}, Link: toService(o.Of), Severity: watchIt}
	about.Text = fmt.Sprintf("Checks are overdue, such as those of %s of %s, so an endpoint that hangs may be given clients. ", registry.Label(o.Longest.String()), o.Of.Label())
	switch {
	case o.LookUp:
		about.Text += "The look-up of that name has not ended: repair the DNS of this node, or give the endpoint an address."
	case o.Busiest == (registry.Name{}):
		about.Text += "None is under way: raise the descriptor limit (ulimit -n, LimitNOFILE)."
	default:
		about.Text += fmt.Sprintf("Most checks under way are of %s: repair or remove its endpoints that do not answer, or lengthen its interval (haproxy.org/check-interval).", o.Busiest.Label())
	}
	return []problem{about}
}

// nearLimit is the used share of a limit above which it is a problem.
const nearLimit = 0.85

// descriptorsOfAClient is what a TCP client takes: one towards itself, and one towards its endpoint.
const descriptorsOfAClient = 2

func (s *snapshot) nearLimits() (all []problem) {
	for _, l := range s.limits {
		if l.Max <= 0 || share(l) <= nearLimit {
			continue
		}
		is := fmt.Sprintf("is nearly reached (more than %.0f %% of %s are used)", 100*nearLimit, format.Whole(l.Max))
		if l.Used >= l.Max {
			is = fmt.Sprintf("is reached (all %s are used)", format.Whole(l.Max))
		}
		about := problem{Text: fmt.Sprintf("The limit of %s %s: %s.", limitName(l), is, advice.Raise(l.Name)), Link: toLimits, Severity: watchIt}
		if l.Name == "descriptors" && l.Max-l.Used < descriptorsOfAClient { // which are not refused, as at other limits: nobody accepts them
			about.Text, about.Severity = fmt.Sprintf("The descriptors are used up (%s), so new TCP clients wait: %s.", format.Whole(l.Max), advice.Raise(l.Name)), clientsFail
		}
		all = append(all, about)
	}
	return all
}

func share(l traffic.Limit) float64 { return float64(l.Used) / float64(max(l.Max, 1)) }

func limitName(l traffic.Limit) string {
	return strings.ReplaceAll(strings.Replace(l.Name, "udp", "UDP", 1), "_", " ")
}

// about picks the problems of one service.
func about(problems []problem, name registry.Name) (all []problem) {
	for _, q := range problems {
		if slices.Contains(q.Services, name) {
			if q.Link == toService(name) {
				q.Link = link{} // it leads to this page
			}
			all = append(all, q)
		}
	}
	return all
}
