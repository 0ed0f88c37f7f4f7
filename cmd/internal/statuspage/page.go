package statuspage

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/statuspage/recent"
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

	clients clientTables
}

// New returns a page about a node.
func New(node Node) *Page { return &Page{node: node, histories: make(recent.Histories)} }

// Close drops what was kept for viewers. The page may still be asked.
func (p *Page) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forget != nil {
		p.forget.Stop()
	}
	p.dropLocked()
	p.clients.drop()
}

func (p *Page) dropLocked() {
	p.latest, p.traffic, p.search = nil, recent.Meter[tally]{}, search{}
	clear(p.histories)
}

// How old a snapshot may be that is shown again: shownFor at least, and so much that to take snapshots costs at most 1/maxCost of the
// time of one processor.
const (
	shownFor = 900 * time.Millisecond
	maxCost  = 50
)

// look returns a snapshot of now, or of a moment ago.
func (p *Page) look() *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lookLocked()
}

func (p *Page) lookLocked() *snapshot {
	now := time.Now()
	if p.forget == nil {
		p.forget = time.AfterFunc(recent.Forgets, p.Close)
	}
	p.forget.Reset(recent.Forgets)
	if p.latest == nil || now.Sub(p.latest.at) > max(shownFor, maxCost*p.latest.took) {
		p.latest = p.takeLocked(now)
	}
	return p.latest
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
		"/status/style.css": file("files/style.css", "text/css; charset=utf-8"),
		"/status/script.js": file("files/script.js", "text/javascript; charset=utf-8"),
		"/status/icon.svg":  file("files/icon.svg", "image/svg+xml"),
	}
}

// Streams are the pages whose answers go on until the client leaves, by their paths.
func (p *Page) Streams() map[string]http.Handler {
	return map[string]http.Handler{"/status/events": http.HandlerFunc(p.events)}
}

//go:embed files
var files embed.FS

var templates = template.Must(template.New("").Funcs(functions).ParseFS(files, "files/*.html"))

// policy lets a page load its own style, script and icon, send its form to itself, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func setHeaders(h http.Header, contentType string) {
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// file answers with an embedded file.
func file(name, contentType string) http.Handler {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		setHeaders(w.Header(), contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content) // who does not want it need not take it
	})
}

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
		setHeaders(w.Header(), "text/html; charset=utf-8")
		w.WriteHeader(v.status)
		_, _ = w.Write(text.Bytes()) // who does not want it need not take it
	})
}
