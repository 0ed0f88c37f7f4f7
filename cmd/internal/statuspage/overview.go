package statuspage

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"kubeproxy/cmd/internal/statuspage/elections"
	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/config"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A frame is what all pages have.
type frame struct {
	Title  string
	Host   string
	Here   string // the path of the page
	Events string // where its changes are; "" if it does not change
	At     string // the time of day that it shows

	Version string
}

func (p *Page) frame(s *snapshot, here, title, query string) frame {
	f := frame{Title: title + " – " + p.node.Host, Host: p.node.Host, Here: here, Version: p.node.Version, At: s.at.Format(time.TimeOnly)}
	if here != "" {
		f.Events = "/status/events?of=" + here
		if query != "" {
			f.Events += "&" + query
		}
	}
	return f
}

// A verdict is the first sentence of a page, and what follows it.
type verdict struct {
	OK       bool
	Text     string
	Link     link
	More     []problem // beside the first one
	Figures  string    // in a sentence
	Headline string    // for the title of the window
}

// newVerdict judges a list of problems.
func newVerdict(problems []problem, well, figures, host string) verdict {
	if len(problems) == 0 {
		return verdict{OK: true, Text: well, Figures: figures, Headline: "Well – " + host}
	}
	n := fmt.Sprintf("%d problems – %s", len(problems), host)
	if len(problems) == 1 {
		n = "1 problem – " + host
	}
	return verdict{Text: problems[0].Text, Link: problems[0].Link, More: problems[1:], Figures: figures, Headline: n}
}

// figures tells in a sentence how much there is of everything.
func (s *snapshot) figures() string {
	text := fmt.Sprintf("%s on %s, %s; %s now", format.Plural(s.services, "service"), format.Plural(s.open, "open port"), format.Plural(s.endpoints, "endpoint"), format.Plural(int(s.active), "client"))
	if s.Rates.Known {
		text += fmt.Sprintf(", %s new, %s sent and %s received per second", format.Rate(s.New, true), format.Bytes(s.Sent, true), format.Bytes(s.Received, true))
	}
	if n := len(s.overrides); n > 0 {
		text += fmt.Sprintf("; %s by operators in force", format.Plural(n, "override"))
	}
	for _, from := range s.sources {
		if from.Connected && from.Ready {
			text += fmt.Sprintf("; %s at revision %d", registry.Label(from.Name), from.Revision)
		}
	}
	return text + "."
}

// A portRow is one row of the table of services, as it is shown.
type portRow struct {
	ID       string
	Listener registry.ListenerID
	Service  registry.Name
	Label    string
	Waiting  []registry.PortKey
	MoreWait int
	Closed   string // why it is not open; "" if it is
	Bad      bool
	Refused  bool // its newest record is not in force
	Warned   bool // a record of it has a warning

	Endpoints int
	Failing   []failing
	MoreFail  int

	Active int64
	recent.Rates
}

// A failing endpoint does not answer.
type failing struct{ Addr, Since string }

// How many names a row lists.
const (
	maxWaiting = 3
	maxFailing = 2
)

func newPortRow(r *port, now time.Time) portRow {
	row := portRow{
		ID: strings.ReplaceAll(r.PortStatus.ID.Short(), " ", "-"), Listener: r.PortStatus.ID, Service: r.Owner.Name, Label: r.label, Waiting: r.Waiting,
		Endpoints: r.rotation.Endpoints, Active: r.active, Rates: r.Rates, Bad: r.hasProblem(), Refused: r.refused, Warned: r.warned,
	}
	if r.Err != nil {
		row.Closed = cut(r.Err.Error())
	}
	if r.Refused {
		row.ID += "-refused" // another namespace may have the port
	}
	if r.Refused && len(r.Waiting) > 0 {
		row.Service, row.Waiting = r.Waiting[0].Name, r.Waiting[1:]
	}
	if n := len(row.Waiting); n > maxWaiting {
		row.Waiting, row.MoreWait = row.Waiting[:maxWaiting], n-maxWaiting
	}
	row.Failing, row.MoreFail = failingOf(r.rotation, now)
	return row
}

func failingOf(r rotation.Status, now time.Time) (shown []failing, more int) {
	for _, e := range r.Examples[:min(len(r.Examples), maxFailing)] {
		shown = append(shown, failing{registry.Label(e.Addr.String()), format.Clock(e.FailingSince, now)})
	}
	return shown, r.Failing - len(shown)
}

// A header is the head of one column.
type header struct {
	column
	Href   string
	Sorted string // of aria-sort; "" if the rows are not in its order
}

// headers are the heads of all columns. A column of numbers has the largest first.
func (q query) headers() (all []header) {
	for _, c := range columns {
		h := header{column: c}
		next := q
		next.Sort, next.Down, next.Page = c.Name, c.Number, 1
		if c.Name == q.Sort {
			next.Down = !q.Down
			if h.Sorted = "ascending"; q.Down {
				h.Sorted = "descending"
			}
		}
		h.Href = next.href()
		all = append(all, h)
	}
	return all
}

// A pager leads to the other pages of a table.
type pager struct {
	From, To, All  int
	Previous, Next string // "" if there is none
}

func (q query) pager(first, shown, all int) pager {
	g := pager{From: min(first+1, all), To: first + shown, All: all}
	if first > 0 {
		previous := q
		previous.Page--
		g.Previous = previous.href()
	}
	if first+shown < all {
		next := q
		next.Page++
		g.Next = next.href()
	}
	return g
}

// A sourceRow is one source as it is shown.
type sourceRow struct {
	Name, State string
	OK          bool
	Reason      string
	Revision    int64
	Confirmed   string // how long ago
	Outages     uint64
	Causes      string
	Services    int
	Endpoints   int
	Rejected    int
}

func newSourceRow(from source, now time.Time) sourceRow {
	row := sourceRow{
		Name: registry.Label(from.Name), OK: from.Connected, Reason: from.Reason, Revision: from.Revision,
		Services: from.Services, Endpoints: from.Endpoints, Rejected: from.Rejected, Confirmed: format.Unknown,
	}
	if row.State = "connected since "; !from.Connected {
		row.State = "away since "
	}
	row.State += format.Clock(from.Since, now)
	if !from.Current.IsZero() {
		row.Confirmed = format.Duration(now.Sub(from.Current).Truncate(time.Second)) + " ago"
	}
	var causes []string
	for _, end := range from.Ends {
		if row.Outages += end.Count; end.Count > 0 {
			causes = append(causes, fmt.Sprintf("%s %s", end.Cause, format.Whole(end.Count)))
		}
	}
	row.Causes = strings.Join(causes, ", ")
	return row
}

// A limitRow is one limit as it is shown.
type limitRow struct {
	traffic.Limit
	Label   string
	Percent int
	Near    bool
}

func newLimitRow(l traffic.Limit) limitRow {
	return limitRow{Limit: l, Label: limitName(l), Percent: int(100 * min(share(l), 1)), Near: share(l) > nearLimit}
}

// overviewData is what the first page shows.
type overviewData struct {
	frame
	Verdict    verdict
	Query      query
	Selections []selection
	Headers    []header
	Rows       []portRow
	Pager      pager
	Elections  []elections.Row
	Sources    []sourceRow
	Limits     []limitRow
}

// overview is the first page.
func (p *Page) overview(r *http.Request) view {
	s, q := p.look(), parseQuery(r.URL.Query())
	ports, first, all := q.rows(s.ports, p.withEndpoint(s, q.Text))
	d := overviewData{
		frame:      p.frame(s, "/", "kube-proxy", q.encode()),
		Verdict:    newVerdict(s.listed, "All is well.", s.figures(), p.node.Host),
		Query:      q,
		Selections: selections,
		Headers:    q.headers(),
		Pager:      q.pager(first, len(ports), all),
	}
	d.Title = d.Verdict.Headline
	rows := part{id: "services", template: "rows"}
	for _, r := range ports {
		row := newPortRow(r, s.at)
		d.Rows = append(d.Rows, row)
		rows.rows = append(rows.rows, part{id: row.ID, template: "row", data: row})
	}
	s.eachElection(func(e *config.Election) { d.Elections = append(d.Elections, elections.NewRow(e, s.at)) })
	for _, from := range s.sources {
		d.Sources = append(d.Sources, newSourceRow(from, s.at))
	}
	for _, l := range s.limits {
		d.Limits = append(d.Limits, newLimitRow(l))
	}
	rows.data = d
	return view{template: "overview.html", status: http.StatusOK, data: d, parts: []part{
		{id: "verdict", template: "verdict", data: d.Verdict},
		{id: "more", template: "more", data: d.Verdict},
		{id: "figures", template: "figures", data: d.Verdict},
		rows,
		{id: "pager", template: "pager", data: d.Pager},
		{id: "elections", template: "elections", data: d},
		{id: "sources-body", template: "sources", data: d},
		{id: "limits-body", template: "limits", data: d},
		{id: "at", template: "at", data: d},
	}}
}
