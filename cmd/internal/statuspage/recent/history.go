package recent

import (
	"time"

	"kubeproxy/registry"
)

// The last five minutes of a service are kept from the first look at it, one point for five seconds.
const (
	KeptPoints   = 60
	maxHistories = 128             // services; the one that was looked at longest ago makes room
	Forgets      = 5 * time.Minute // after the last look

)

// A Point is what a service did in the time before it.
type Point struct {
	At     time.Time
	Active int64
	Rates
}

// A History is the last five minutes of one service with a viewer.
type History struct {
	looked time.Time
	Points []Point // oldest first
	last   Counts
	lastAt time.Time // zero: nothing was read yet

	Endpoints Meter[EndpointKey] // how often each was given a client; only Begun counts
}

// An EndpointKey is one endpoint of one port of a service.
type EndpointKey struct {
	Port string
	Addr registry.Addr
}

// Add notes what a service has carried until now.
func (h *History) Add(now time.Time, c Counts) {
	gap := now.Sub(h.lastAt)
	switch {
	case !h.lastAt.IsZero() && gap < meterStep:
		return
	case !h.lastAt.IsZero() && gap <= meterGap && c.Begun >= h.last.Begun && c.Sent >= h.last.Sent && c.Received >= h.last.Received:
		m := Meter[struct{}]{next: map[struct{}]Counts{{}: h.last}, nextAt: h.lastAt}
		h.Points = append(h.Points, Point{now, c.Active, m.Rate(now, struct{}{}, c)})
		if len(h.Points) > KeptPoints {
			h.Points = h.Points[1:]
		}
	}
	h.last, h.lastAt = c, now
}

// Histories are those of all services with a viewer.
type Histories map[registry.Name]*History

// Of returns the history of a service, which begins now if there is none.
func (hs Histories) Of(name registry.Name, now time.Time) *History {
	h := hs[name]
	if h == nil {
		hs.makeRoom()
		h = new(History)
		hs[name] = h
	}
	h.looked = now
	return h
}

// makeRoom forgets the history that was looked at longest ago, if there is no room for another.
func (hs Histories) makeRoom() {
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

// Expire forgets services that had no viewer for long.
func (hs Histories) Expire(now time.Time) {
	for name, h := range hs {
		if now.Sub(h.looked) > Forgets {
			delete(hs, name)
		}
	}
}
