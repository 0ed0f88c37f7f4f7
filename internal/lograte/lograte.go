// Package lograte limits how many log lines of one kind are written, so that an outage, a client or a record
// that goes wrong a thousand times a second cannot fill a disk or hide what else there is to read.
//
// One [Limiter] serves all lines of a kind, whatever port, service or endpoint they are about. A sweep over
// 14,000 ports therefore takes as many lines as a sweep over one.
package lograte

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Limiter limits the log lines of one kind. In each window of time it lets Lines of them pass, at most one
// about each subject S: one noisy subject uses up one line, and leaves the others to its neighbours. Lines
// of a kind without subjects have struct{} for S, and one of them passes.
//
// A window begins with the first line that finds none open. The first window has length First. The next one is
// twice as long as the one before, up to Last, unless as much time as the last window's length passed in between.
//
// The zero Limiter is ready. Any goroutine may use it. Limiters of equal policy are made by a composite literal.
type Limiter[S comparable] struct {
	Lines       int           // per window; 0: 20
	First, Last time.Duration // length of a window; 0: one minute, and First

	full atomic.Int64  // when the present window ends, if it has no room left; read without mu, since floods come here
	held atomic.Uint64 // lines since the last one that passed

	mu     sync.Mutex    // guards the fields below
	start  time.Time     // of the first window; all times are since then. Constant once full is set
	until  time.Duration // the present window ends
	length time.Duration // of the window that ends then
	passed []S           // subjects that have had their line in this window
}

const (
	lines  = 20
	window = time.Minute
)

// Lasting returns a limiter for what may last for hours, such as an outage: so many lines pass in a window, and windows double from ten
// seconds up to five minutes.
func Lasting[S comparable](lines int) *Limiter[S] {
	return &Limiter[S]{Lines: lines, First: 10 * time.Second, Last: 5 * time.Minute}
}

var total atomic.Uint64

// Held is the number of lines that all limiters have held back.
func Held() uint64 { return total.Load() }

// Allow reports whether a line about a subject may be written now, and a note to append to it. The note is empty,
// or says how many lines were held back since the last one, and for how long the next ones will be.
func (l *Limiter[S]) Allow(about S) (note string, ok bool) {
	if full := l.full.Load(); full > 0 && int64(time.Since(l.start)) < full {
		l.hold()
		return "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.start.IsZero() {
		l.start = time.Now()
	}
	now := time.Since(l.start)
	if now >= l.until {
		l.openLocked(now)
	}
	most := cmp.Or(l.Lines, lines)
	if len(l.passed) == most || slices.Contains(l.passed, about) {
		l.hold()
		return "", false
	}
	l.passed = append(l.passed, about)
	if n := l.held.Swap(0); n > 0 {
		note = fmt.Sprintf(" (%d lines of this kind were held back)", n)
	}
	if len(l.passed) == most {
		l.full.Store(int64(l.until))
		if most > 1 {
			note += fmt.Sprintf(" (more lines of this kind are held back for %v)", (l.until - now).Round(time.Second))
		}
	}
	return note, true
}

func (l *Limiter[S]) hold() {
	l.held.Add(1)
	total.Add(1)
}

// openLocked begins a window.
func (l *Limiter[S]) openLocked(now time.Duration) {
	first := cmp.Or(l.First, window)
	if l.length == 0 || now-l.until > l.length {
		l.length = first
	} else {
		l.length = min(2*l.length, max(l.Last, first))
	}
	l.until = now + l.length
	clear(l.passed) // keep no subject alive
	l.passed = l.passed[:0]
}
