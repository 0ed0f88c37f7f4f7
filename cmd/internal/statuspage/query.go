package statuspage

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// pageRows is how many services one page lists.
const pageRows = 100

// A query says which rows the first page shows, in which order.
type query struct {
	Text string // part of a name, of a port number, of a protocol or of the address of an endpoint; "" for any
	Show string // the name of a selection
	Sort string // the name of a column; "": services with problems first
	Down bool   // the largest first
	Page int    // from 1
}

const maxText = 100 // bytes of Text

// A selection picks rows.
type selection struct {
	Name, Label string
	has         func(*port) bool
}

var selections = []selection{
	{"all", "all", func(*port) bool { return true }},
	{"problems", "with problems", (*port).hasProblem},
	{"busy", "with clients", func(r *port) bool { return r.active > 0 }},
	{"empty", "without endpoints", (*port).isEmpty},
}

func (r *port) isEmpty() bool { return !r.Refused && r.rotation.Endpoints == 0 }

func (r *port) hasProblem() bool {
	return r.Err != nil || len(r.Waiting) > 0 || r.rotation.Failing > 0 || r.unserved || len(r.refusals) > 0 || r.rotation.Condition > health.NoEndpoints && r.rotation.Condition != health.NoLocal || r.refused || r.warned
}

// A column is what rows can be sorted by. Ties keep the order of ports.
type column struct {
	Name, Label string
	Number      bool // aligned to the right
	Extra       bool // left out on a narrow screen
	compare     func(a, b *port) int
}

var columns = []column{
	{"port", "Port", false, false, func(a, b *port) int { return cmp.Or(cmp.Compare(a.ID.Protocol, b.ID.Protocol), a.ID.Compare(b.ID)) }},
	{"service", "Service", false, false, func(a, b *port) int { return cmp.Compare(a.label, b.label) }},
	{"endpoints", "Endpoints", false, false, func(a, b *port) int {
		return cmp.Or(cmp.Compare(a.rotation.Failing, b.rotation.Failing), cmp.Compare(a.rotation.Endpoints, b.rotation.Endpoints))
	}},
	{"active", "Clients", true, false, func(a, b *port) int { return cmp.Compare(a.active, b.active) }},
	{"new", "New/s", true, false, func(a, b *port) int { return cmp.Compare(a.New, b.New) }},
	{"sent", "Sent/s", true, true, func(a, b *port) int { return cmp.Compare(a.Sent, b.Sent) }},
	{"received", "Received/s", true, true, func(a, b *port) int { return cmp.Compare(a.Received, b.Received) }},
}

// parseQuery reads a query. What makes no sense counts as not being there.
func parseQuery(values url.Values) query {
	q := query{Show: selections[0].Name, Down: values.Get("dir") == "down"}
	text := values.Get("q")
	q.Text = strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxText)], ""))
	for _, s := range selections {
		if s.Name == values.Get("show") {
			q.Show = s.Name
		}
	}
	for _, c := range columns {
		if c.Name == values.Get("sort") {
			q.Sort = c.Name
		}
	}
	q.Down = q.Down && q.Sort != ""
	n, err := strconv.Atoi(values.Get("page"))
	if err != nil {
		n = 1
	}
	q.Page = max(n, 1)
	return q
}

// href is the address of the first page with this query.
func (q query) href() string {
	if encoded := q.encode(); encoded != "" {
		return "/?" + encoded
	}
	return "/"
}

// encode writes the query as a URL has it, without what is the default.
func (q query) encode() string {
	values := make(url.Values)
	set := func(name, value string, isSet bool) {
		if isSet {
			values.Set(name, value)
		}
	}
	set("q", q.Text, q.Text != "")
	set("show", q.Show, q.Show != selections[0].Name)
	set("sort", q.Sort, q.Sort != "")
	set("dir", "down", q.Down)
	set("page", strconv.Itoa(q.Page), q.Page > 1)
	return values.Encode()
}

// brokenFirst orders ports by what their clients feel: those that have problems, and then the others.
func brokenFirst(a, b *port) int {
	switch x, y := a.hasProblem(), b.hasProblem(); {
	case x && !y:
		return -1
	case y && !x:
		return 1
	}
	return 0
}

// rows returns the rows that the query selects, in its order, on its page, and how many there are on all pages. A page beyond the
// last one is the last one: first is the position of the first row among all. Ports in withEndpoint have the text in an endpoint.
func (q *query) rows(ports []port, withEndpoint map[registry.PortKey]bool) (rows []*port, first, all int) {
	var has func(*port) bool
	for _, s := range selections {
		if s.Name == q.Show {
			has = s.has
		}
	}
	text := strings.ToLower(q.Text)
	for i := range ports {
		if r := &ports[i]; has(r) && (r.contains(text) || !r.Refused && withEndpoint[r.Owner]) {
			rows = append(rows, r)
		}
	}
	if q.Sort == "" {
		slices.SortStableFunc(rows, brokenFirst)
	}
	for _, c := range columns {
		if c.Name == q.Sort {
			slices.SortStableFunc(rows, func(a, b *port) int {
				if q.Down {
					a, b = b, a
				}
				return c.compare(a, b)
			})
		}
	}
	all = len(rows)
	q.Page = min(q.Page, max(1, (all+pageRows-1)/pageRows))
	first = (q.Page - 1) * pageRows
	return rows[first:min(first+pageRows, all)], first, all
}

// contains reports whether the port, its owner or one of those who wait for it has a lower-case text in its name.
func (r *port) contains(text string) bool {
	if text == "" || strings.Contains(strings.ToLower(r.label), text) || strings.Contains(r.ID.Short()+" "+r.ID.Protocol.String()+" "+strconv.Itoa(int(r.ID.Number)), text) {
		return true
	}
	return slices.ContainsFunc(r.Waiting, func(k registry.PortKey) bool { return strings.Contains(strings.ToLower(label(k)), text) })
}
