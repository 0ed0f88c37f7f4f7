package history

import (
	"fmt"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/internal/lograte"
	"kubeproxy/proxy/balance"
	"kubeproxy/registry"
)

// Room is how many changes are remembered.
const Room = 1000

// An Entry is one change, in words that are fit for a terminal.
type Entry struct {
	Time      time.Time `json:"time"`
	Source    string    `json:"source"`              // of the registry, or Operator
	Revision  int64     `json:"revision,omitempty"`  // of the registry
	UID       *int      `json:"uid,omitempty"`       // of the operator
	Service   string    `json:"service,omitempty"`   // "" if it is about the node
	Of        string    `json:"of"`                  // service, endpoints, override or node
	Change    string    `json:"change"`              // before → after
	Corrected bool      `json:"corrected,omitempty"` // a full list found what the watch had missed
}

// Operator is the source of what was asked for by the control socket.
const Operator = "operator"

// String is the line of the log.
func (e *Entry) String() string {
	who := e.Source
	switch {
	case e.UID != nil:
		who = fmt.Sprintf("%s (%s)", e.Source, balance.Who(*e.UID))
	case e.Revision != 0:
		who = fmt.Sprintf("%s@%d", e.Source, e.Revision)
	}
	if e.Corrected {
		who += ", which a full list found"
	}
	what := e.Of
	if e.Service != "" {
		what += " " + e.Service
	}
	return fmt.Sprintf("%s: %s: %s", who, what, e.Change)
}

// A History is the last changes. The zero value is ready, and any goroutine may use it.
type History struct {
	lines lograte.Limiter[uint64] // about changes, each of which is a subject

	mu      sync.Mutex // guards the fields below
	ring    []Entry    // up to Room; then the oldest is at n%Room
	n       uint64     // changes noted ever
	skipped uint64     // changes of steps with more of them than the ring has room for
}

// Note remembers a change, and logs it.
func (h *History) Note(e Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked(e)
}

func (h *History) noteLocked(e Entry) {
	if len(h.ring) < Room {
		h.ring = append(h.ring, e)
	} else {
		h.ring[h.n%Room] = e
	}
	h.n++
	if note, ok := h.lines.Allow(h.n); ok {
		glog.Infof("%s%s", &e, note)
	}
}

// Observe remembers the changes of a step, the last ones if there are more than it has room for.
func (h *History) Observe(step config.Step) {
	now, skipped := time.Now(), max(0, step.Len()-Room)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skipped += uint64(skipped)
	i := 0
	for c := range step.Changes() {
		if i++; i <= skipped {
			continue
		}
		e := Entry{Time: now, Source: registry.Label(step.Source), Revision: step.Revision, Service: c.Name.Label(), Corrected: step.Corrected}
		if c.IsService {
			e.Of, e.Change = "service", ofService(c.ServiceBefore, c.ServiceAfter)
		} else {
			e.Of, e.Change = "endpoints", ofEndpoints(c.EndpointsBefore, c.EndpointsAfter)
		}
		h.noteLocked(e)
	}
}

// Last returns the last changes that pass, n at most, the newest last, and how many there were ever.
func (h *History) Last(n int, passes func(*Entry) bool) (last []Entry, ever uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range len(h.ring) {
		e := &h.ring[(h.n-1-uint64(i))%Room]
		if len(last) == n {
			break
		}
		if passes == nil || passes(e) {
			last = append(last, *e)
		}
	}
	for i, j := 0, len(last)-1; i < j; i, j = i+1, j-1 {
		last[i], last[j] = last[j], last[i]
	}
	return last, h.n + h.skipped
}
