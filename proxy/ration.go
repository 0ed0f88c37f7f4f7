package proxy

import (
	"fmt"
	"sync"
	"time"
)

// A ration lets a few log lines of a kind pass in a minute, each of which may speak of something else, and
// counts those that it holds back. (A quieter is for lines that all say the same.) When a rack goes down
// with a thousand endpoints, the first of them say what is going on; the others would only push out what
// else there is to read. The zero value is ready, and any goroutine may ask.
type ration struct {
	mu       sync.Mutex // guards the fields below
	next     time.Duration
	left     int
	withheld int
}

const (
	rationSize = 20
	rationFor  = time.Minute
)

// ask tells whether a line may be logged now, and what to add to it: how many were held back since the
// last one, or that the next ones will be.
func (r *ration) ask() (note string, ok bool) { return r.at(sinceStart()) }

func (r *ration) at(now time.Duration) (note string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now >= r.next {
		r.next, r.left = now+rationFor, rationSize
	}
	if r.left == 0 {
		r.withheld++
		return "", false
	}
	r.left--
	if r.withheld > 0 {
		note = fmt.Sprintf(" (%d lines of this kind were held back)", r.withheld)
		r.withheld = 0
	}
	if r.left == 0 {
		note += fmt.Sprintf(" (more lines of this kind are held back for %v)", (r.next - now).Round(time.Second))
	}
	return note, true
}
