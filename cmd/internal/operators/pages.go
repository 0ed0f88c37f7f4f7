package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"log"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"strconv"
	"strings"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/crowd"
)

// Answers are what operators are told. All of its functions may be called at any time, by any number of
// goroutines. What they return is shown to the client.
type Answers struct {
	Live    func() error // whether the node's work is getting done; nil for yes
	Healthy func() error
	Ready   func() (notes []string, err error) // the notes do not stand in the way

	Configz func() any   // to be shown as JSON
	Version any          // the same
	Metrics http.Handler // nil if there are none

	// What else is answered at the metrics address, by path.
	Pages   map[string]http.Handler
	Files   map[string]http.Handler // short answers that take no work
	Streams map[string]http.Handler // answers that go on until the client leaves
	Actions map[string]http.Handler // of requests with the method POST

	Probed func(page, code string) // told of each answer of livez, healthz and readyz; may be nil
}

// A scope is which pages an address answers.
type scope uint8

const (
	health      scope = iota // how the node is
	metricsOnly              // its metrics, and nothing else
	everything
)

// pages are what is answered at one address, by path. A path that ends with a slash stands for all below it.
type pages map[string]http.Handler

// An action is what is answered to POST alone.
type action struct{ http.Handler }

// pages gives what is answered at a socket with room for so many clients. Streams end with ctx.
func (a Answers) pages(ctx context.Context, of scope, profiling bool, room int, renderer *renderer) pages {
	p := make(pages)
	if a.Metrics != nil && of != health {
		p["/metrics"] = checkHost(renderer.page(a.Metrics))
	}
	if of == metricsOnly {
		return p
	}
	p["/livez"] = a.probe("livez", func() ([]string, error) { return nil, a.Live() })
	judging := make(chan struct{}, atWork)
	p["/healthz"] = inTurn(judging, a.probe("healthz", func() ([]string, error) { return nil, a.Healthy() }))
	p["/readyz"] = inTurn(judging, a.probe("readyz", a.Ready))
	if of == health {
		return p
	}
	p["/version"] = document(func() any { return a.Version })
	p["/configz"] = renderer.page(document(a.Configz))
	for path, page := range a.Pages {
		p[path] = renderer.page(page)
	}
	maps.Copy(p, a.Files)
	streams := make(chan struct{}, min(maxStreams, max(room/2, 1)))
	for path, stream := range a.Streams {
		p[path] = limited(streams, endless(ctx, stream))
	}
	if profiling {
		few := make(chan struct{}, atWork) // a profile takes as long as its request says, and is sent as it is made
		p["/debug/pprof/"] = limited(few, http.HandlerFunc(pprof.Index))
		p["/debug/pprof/cmdline"] = limited(few, http.HandlerFunc(pprof.Cmdline))
		p["/debug/pprof/profile"] = limited(few, http.HandlerFunc(pprof.Profile))
		p["/debug/pprof/symbol"] = limited(few, http.HandlerFunc(pprof.Symbol))
		p["/debug/pprof/trace"] = limited(few, http.HandlerFunc(pprof.Trace))
	}
	for path, page := range p {
		switch path {
		case "/metrics": // as above
		case "/livez", "/healthz", "/readyz": // the same for all clients, and asked by load balancers under any name
		default:
			p[path] = checkHost(page)
		}
	}
	acting := make(chan struct{}, atWork)
	for path, act := range a.Actions {
		p[path] = action{checkHost(limited(acting, act))}
	}
	return p
}

// String lists the paths, without the parts of the status page.
func (p pages) String() string {
	paths := slices.Sorted(maps.Keys(p))
	return strings.Join(slices.DeleteFunc(paths, func(path string) bool { return strings.HasPrefix(path, "/status/") }), " ")
}

// ServeHTTP answers a request for a page that there is, and refuses all others in few words. (A ServeMux
// would redirect some.)
func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	page, ok := p[r.URL.Path]
	if !ok && strings.HasPrefix(r.URL.Path, "/debug/pprof/") {
		page, ok = p["/debug/pprof/"] // which looks for the profile of that name
	}
	_, acts := page.(action)
	switch {
	case !ok:
		write(w, http.StatusNotFound, "there is no such page\n")
	case acts && r.Method != http.MethodPost:
		header.Set("Allow", "POST")
		write(w, http.StatusMethodNotAllowed, "only POST\n")
	case acts:
		page.ServeHTTP(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		write(w, http.StatusMethodNotAllowed, "only GET and HEAD\n")
	default:
		page.ServeHTTP(w, r)
	}
}

// probe answers "ok", or why not.
func (a Answers) probe(page string, ask func() ([]string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := http.StatusOK, "ok\n"
		notes, err := ask()
		if err != nil {
			status, text = http.StatusServiceUnavailable, err.Error()+"\n"
		}
		for _, note := range notes {
			text += note + "\n"
		}
		if a.Probed != nil {
			a.Probed(page, strconv.Itoa(status))
		}
		write(w, status, text)
	})
}

// document shows a value as JSON, in which markup is escaped.
func document(get func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := json.MarshalIndent(get(), "", "  ")
		if err != nil {
			glog.Errorf("%s: %v", r.URL.Path, err)
			write(w, http.StatusInternalServerError, "it cannot be shown\n")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
		_, _ = w.Write(append(text, '\n')) // who does not want to know need not
	})
}

// limited refuses a request when too many are being answered already.
func limited(few chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case few <- struct{}{}:
			defer func() { <-few }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			write(w, http.StatusServiceUnavailable, "too many requests are being answered; try again\n")
		}
	})
}

// maxStreams is how many answers at one address may go on until their clients leave. On a small machine half of the connections bound
// them.
const maxStreams = 8

// endless has an answer go on until the client leaves or ctx ends. Its connection can be closed to make room for a new client.
func endless(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		crowd.ClientOf(r).Answering(false)
		until, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		next.ServeHTTP(w, r.WithContext(until))
	})
}

// inTurn answers as many requests at a time as there are slots. The others wait for a slot, and can be closed meanwhile
// to make room for a new client: answers that hang do not keep a client from /livez.
func inTurn(slots chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
		default:
			c := crowd.ClientOf(r)
			c.Answering(false)
			select {
			case slots <- struct{}{}:
				c.Answering(true)
			case <-r.Context().Done():
				return
			}
		}
		defer func() { <-slots }()
		next.ServeHTTP(w, r)
	})
}

// quietLog takes what net/http has to say. Of clients, such as that they speak TLS, that is nothing that an
// operator could act on; of us, that a page has panicked.
func quietLog() *log.Logger { return log.New(quiet{}, "", 0) }

type quiet struct{}

func (quiet) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("panic")) {
		glog.Errorf("operators: %s", line)
	} else {
		glog.V(4).Infof("operators: %.200q", line)
	}
	return len(line), nil
}
