package statuspage

import (
	"bytes"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/statuspage/elections"
	"kubeproxy/cmd/internal/statuspage/files"
	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Page answers browsers. Make it with [New].
type Page struct {
	node Node

	mu        sync.Mutex // guards the fields below; only viewers wait for it
	latest    *snapshot  // nil when there was no request lately
	traffic   recent.Meter[tally]
	histories recent.Histories
	search    search      // the last one
	forget    *time.Timer // drops all that, after recent.Forgets without a request

	refusals recent.Refusals // not dropped: it says whether what clients felt is over
	sampler  *time.Timer
	closed   bool

	clients recent.Lists[*clientTable]
}

// New returns a page about a node.
func New(node Node) *Page {
	p := &Page{node: node, histories: make(recent.Histories)}
	p.mu.Lock() // sample awaits its timer
	defer p.mu.Unlock()
	p.sampler = time.AfterFunc(sampleEvery, p.sample)
	return p
}

// Close drops what was kept for viewers. The page may still be asked.
func (p *Page) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forget != nil {
		p.forget.Stop()
	}
	p.closed = true
	p.sampler.Stop()
	p.dropLocked()
}

// sampleEvery is how often refusals are read though there is no viewer: who looks wants to know whether they go on.
const sampleEvery = time.Minute

func (p *Page) sample() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.refusals.Read(time.Now(), p.node.Proxier.EachTotals())
		p.sampler.Reset(sampleEvery)
	}
}

func (p *Page) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked()
}

func (p *Page) dropLocked() {
	p.latest, p.traffic, p.search = nil, recent.Meter[tally]{}, search{}
	clear(p.histories)
	p.clients.Drop()
}

// look returns a snapshot of now, or of a moment ago.
func (p *Page) look() *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lookLocked()
}

func (p *Page) lookLocked() *snapshot {
	now := time.Now()
	if p.forget == nil {
		p.forget = time.AfterFunc(recent.Forgets, p.drop)
	}
	p.forget.Reset(recent.Forgets)
	if p.latest == nil || now.Sub(p.latest.at) > max(recent.ShownFor, recent.MaxCost*p.latest.took) {
		p.latest = p.takeLocked(now)
	}
	return p.latest
}

// takeLocked makes a snapshot. The caller holds the lock of the page.
func (p *Page) takeLocked(now time.Time) *snapshot {
	s := &snapshot{at: now}
	read := make(map[tally]recent.Counts, p.traffic.Len())
	p.refusals.Read(now, func(yield func(traffic.Totals) bool) { // which reads all: the totals are copied once for both
		for t := range p.node.Proxier.EachTotals() {
			if read[tally{t.Service, t.Protocol}] = recent.CountsOf(&t); !yield(t) {
				return
			}
		}
	})
	p.traffic.Read(now, read)
	for key, c := range read {
		s.Rates = s.Rates.Plus(p.traffic.Rate(now, key, c))
		s.active += c.Active
	}
	status := p.node.Proxier.Status()
	rotations := make(map[registry.PortKey]rotation.Status, len(status))
	for r := range p.node.Balancer.RotationStatus() {
		rotations[r.Service] = r
		s.endpoints += r.Endpoints
	}
	for _, from := range p.node.Sources {
		s.sources = append(s.sources, source{from.Name(), from.Status()})
	}
	refused, warned := s.troubledNames()
	elected := s.elections()
	owners := make(map[registry.Name]bool, len(status))
	s.ports = make([]port, 0, len(status))
	for _, status := range status {
		row := port{PortStatus: status}
		if !status.Refused {
			key := tally{status.Owner, status.ID.Protocol}
			c := read[key]
			row.label = label(status.Owner)
			row.active, row.Rates, row.rotation = c.Active, p.traffic.Rate(now, key, c), rotations[status.Owner].Of(status.ID.Protocol, status.Local)
			row.turnedAway(&p.refusals, now)
			row.refused, row.warned = refused[status.Owner.Name], warned[status.Owner.Name]
			if row.isEmpty() {
				row.key = elections.KeyOf(p.node.Proxier.Service(status.Owner.Name))
				e := elected[row.key]
				row.unheld = e != nil && !e.HasHolder()
			}
			owners[status.Owner.Name] = true
		} else if len(status.Waiting) > 0 {
			row.label = label(status.Waiting[0])
		}
		if status.Err == nil {
			s.open++
		}
		s.ports = append(s.ports, row)
	}
	s.services = len(owners)
	s.limits = p.node.Proxier.Limits()
	s.overrides = p.node.Balancer.Overrides()
	s.problems, s.listed = p.problems(s)
	p.addToHistoriesLocked(s, read)
	s.took = time.Since(now)
	return s
}

// A search is which ports of a snapshot have an endpoint with a text in its address.
type search struct {
	in   *snapshot
	text string
	has  map[registry.PortKey]bool
}

// withEndpoint returns the ports that have an endpoint with a text in its address, if the text can be part of one. All viewers with one text
// share the search.
func (p *Page) withEndpoint(s *snapshot, text string) map[registry.PortKey]bool {
	if text = strings.ToLower(text); !strings.ContainsAny(text, ".:") {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.search.in == s && p.search.text == text {
		return p.search.has
	}
	has := make(map[registry.PortKey]bool)
	for i := range s.ports {
		key := s.ports[i].Owner
		if _, ok := has[key]; ok || s.ports[i].Refused {
			continue
		}
		all, _, _ := p.node.Balancer.EndpointsOf(key, math.MaxInt)
		has[key] = slices.ContainsFunc(all, func(e rotation.EndpointStatus) bool { return strings.Contains(strings.ToLower(e.Addr.String()), text) })
	}
	p.search = search{s, text, has}
	return has
}

// Handlers are the pages, by their paths.
func (p *Page) Handlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/":               p.document(p.overview),
		"/status/service": p.document(p.service),
		"/status/endings": p.document(p.endings),
		"/status/changes": p.document(p.changes),
	}
}

// Files are what the pages load, by their paths.
func (p *Page) Files() map[string]http.Handler {
	return map[string]http.Handler{
		"/status/style.css": files.Handler("style.css", "text/css; charset=utf-8"),
		"/status/script.js": files.Handler("script.js", "text/javascript; charset=utf-8"),
		"/status/icon.svg":  files.Handler("icon.svg", "image/svg+xml"),
	}
}

// Streams are the pages whose answers go on until the client leaves, by their paths.
func (p *Page) Streams() map[string]http.Handler {
	return map[string]http.Handler{"/status/events": http.HandlerFunc(p.events)}
}

var templates = template.Must(template.New("").Funcs(functions).ParseFS(files.Templates, "*.html"))

// A view is one page for one viewer: its template, and the parts of it that change.
type view struct {
	template string
	status   int // of the HTTP answer
	data     any
	parts    []part
}

// A part is an element of a page that is sent anew when it changes.
type part struct {
	id       string // of the element
	template string
	data     any
	rows     []part // of a table: a row that changes is sent alone
}

// document answers with a whole page.
func (p *Page) document(make func(*http.Request) view) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := make(r)
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, v.template, v.data); err != nil {
			glog.Errorf("status page: %v", err)
			http.Error(w, "the page cannot be made; the log says why", http.StatusInternalServerError)
			return
		}
		files.SetHeaders(w.Header(), "text/html; charset=utf-8")
		w.WriteHeader(v.status)
		_, _ = w.Write(text.Bytes()) // who does not want it need not take it
	})
}
