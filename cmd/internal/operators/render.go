package operators

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"kubeproxy/cmd/internal/crowd"
)

// How large pages are answered. To make one takes processor time, and to send one takes as long as its reader
// likes. So a page is made into memory, by at most atWork requests at a time, and its slot is free again before
// the first byte is sent. A reader then has pageTime to take it. All pages that are being sent may hold maxHeld
// bytes: beyond that, the oldest of them is given up.
const (
	atWork   = 4
	pageTime = 15 * time.Second
	maxHeld  = 64 << 20
)

// A renderer bounds what large pages cost. One of them is for all pages of an address: readers of one keep none of another from its pages.
type renderer struct {
	slots chan struct{}
	*unread
}

// An unread is the pages of all addresses of a process that are being sent.
type unread struct {
	mu      sync.Mutex // guards the fields below
	held    int        // bytes of all pages that are being sent
	sending []*sending // oldest first; no more than there are clients
}

// A sending is one page on its way to its reader.
type sending struct {
	bytes  int
	client *crowd.Client
}

func newRenderer(all *unread) *renderer { return &renderer{make(chan struct{}, atWork), all} }

// page answers with what next writes. Requests beyond atWork are refused.
func (r *renderer) page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		page, ok := r.render(next, w, req)
		if !ok {
			w.Header().Set("Retry-After", "1")
			write(w, http.StatusServiceUnavailable, "too many requests are being answered; try again\n")
			return
		}
		client := crowd.ClientOf(req)
		client.Answering(false) // from now on it depends on its reader how long it takes
		defer r.send(client, page.size)()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageTime)) // a recorder of tests has none
		w.Header().Set("Content-Length", strconv.Itoa(page.size))
		w.WriteHeader(page.status)
		for _, b := range page.blocks {
			if _, err := w.Write(b); err != nil {
				return // a reader that leaves need not be told why
			}
		}
	})
}

// render has next write a page into memory, and reports whether there was a slot for that.
func (r *renderer) render(next http.Handler, w http.ResponseWriter, req *http.Request) (*rendered, bool) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	default:
		return nil, false
	}
	m := &rendered{header: w.Header(), status: http.StatusOK}
	next.ServeHTTP(m, req)
	return m, true
}

// send counts a page that is being sent until the function that it returns is called.
func (r *unread) send(c *crowd.Client, n int) (sent func()) {
	s := &sending{n, c}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += n
	r.sending = append(r.sending, s)
	for i := 0; r.held > maxHeld && i < len(r.sending)-1; i++ {
		if old := r.sending[i]; old.client != nil {
			r.held -= old.bytes
			old.bytes = 0
			old.client.Close() // its handler returns soon, and lets go of the page
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.held -= s.bytes
		for i, other := range r.sending {
			if other == s {
				r.sending = append(r.sending[:i], r.sending[i+1:]...)
				break
			}
		}
	}
}

// rendered is a page in memory, and the [http.ResponseWriter] that it is written to. It is in blocks, since one buffer that grows
// would take two to three times as much: metrics of 14,000 ports are 11 MB.
type rendered struct {
	header http.Header
	status int
	blocks [][]byte // full, but for the last; the first is small, as most pages are
	size   int      // of all of them, in bytes
}

const (
	firstBlock = 4 << 10
	blockSize  = 64 << 10
)

// Header implements [http.ResponseWriter].
func (m *rendered) Header() http.Header { return m.header }

// WriteHeader implements [http.ResponseWriter].
func (m *rendered) WriteHeader(status int) { m.status = status }

// Write implements [http.ResponseWriter].
func (m *rendered) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		last := len(m.blocks) - 1
		if last < 0 || len(m.blocks[last]) == cap(m.blocks[last]) {
			m.blocks = append(m.blocks, make([]byte, 0, min(firstBlock+m.size, blockSize)))
			last++
		}
		b := m.blocks[last]
		fits := min(len(p), cap(b)-len(b))
		m.blocks[last] = append(b, p[:fits]...)
		m.size += fits
		p = p[fits:]
	}
	return n, nil
}
