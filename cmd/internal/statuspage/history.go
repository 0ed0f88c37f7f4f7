package statuspage

import (
	"time"

	"kubeproxy/registry"
)

// The last five minutes of a service are kept from the first look at it, one point for five seconds.
const (
	keptPoints     = 60
	maxHistories   = 128 // services; the one that was looked at longest ago makes room
	historyForgets = 5 * time.Minute
)

// A point is what a service did in the time before it.
type point struct {
	at     time.Time
	active int64
	rates
}

// A history is the last five minutes of one service with a viewer.
type history struct {
	looked time.Time
	points []point // oldest first
	last   counts
	lastAt time.Time // zero: nothing was read yet

	endpoints meter[endpointKey] // how often each was given a client; only begun counts
}

// An endpointKey is one endpoint of one port of a service.
type endpointKey struct {
	port string
	addr registry.Addr
}

// add notes what a service has carried until now.
func (h *history) add(now time.Time, c counts) {
	gap := now.Sub(h.lastAt)
	switch {
	case !h.lastAt.IsZero() && gap < meterStep:
		return
	case !h.lastAt.IsZero() && gap <= meterGap && c.begun >= h.last.begun && c.sent >= h.last.sent && c.received >= h.last.received:
		m := meter[struct{}]{next: map[struct{}]counts{{}: h.last}, nextAt: h.lastAt}
		h.points = append(h.points, point{now, c.active, m.rate(now, struct{}{}, c)})
		if len(h.points) > keptPoints {
			h.points = h.points[1:]
		}
	}
	h.last, h.lastAt = c, now
}

// histories are those of all services with a viewer.
type histories map[registry.Name]*history

// of returns the history of a service, which begins now if there is none.
func (hs histories) of(name registry.Name, now time.Time) *history {
	h := hs[name]
	if h == nil {
		hs.makeRoom()
		h = new(history)
		hs[name] = h
	}
	h.looked = now
	return h
}

// makeRoom forgets the history that was looked at longest ago, if there is no room for another.
func (hs histories) makeRoom() {
	if len(hs) < maxHistories {
		return
	}
	var oldest registry.Name
	first := true
	for name, h := range hs {
		if first || h.looked.Before(hs[oldest].looked) {
			oldest, first = name, false
		}
	}
	delete(hs, oldest)
}

// expire forgets services that had no viewer for long.
func (hs histories) expire(now time.Time) {
	for name, h := range hs {
		if now.Sub(h.looked) > historyForgets {
			delete(hs, name)
		}
	}
}
