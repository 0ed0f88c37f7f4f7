package recent

import (
	"time"

	"kubeproxy/proxy/traffic"
)

// Counts are counters of one thing at one moment.
type Counts struct {
	Active                int64  // connections and sessions now
	Begun, Sent, Received uint64 // those that have begun; bytes to endpoints, and to clients
}

// CountsOf picks the counts of totals.
func CountsOf(t *traffic.Totals) Counts { return Counts{t.Active, t.Begun, t.Sent, t.Received} }

// Plus adds counts.
func (c Counts) Plus(d Counts) Counts {
	return Counts{c.Active + d.Active, c.Begun + d.Begun, c.Sent + d.Sent, c.Received + d.Received}
}

// Rates are what grew by the second.
type Rates struct {
	New, Sent, Received float64
	Known               bool // false at the first look
}

// Plus adds rates.
func (r Rates) Plus(s Rates) Rates {
	return Rates{r.New + s.New, r.Sent + s.Sent, r.Received + s.Received, r.Known || s.Known}
}

// A rate is over at least meterStep, and over two steps at most while there are viewers. After meterGap without one, it
// begins anew.
const (
	meterStep = 5 * time.Second
	meterGap  = time.Minute
)

// A Meter makes rates of counters that are read now and then.
type Meter[K comparable] struct {
	base, next     map[K]Counts // nil: not read yet
	baseAt, nextAt time.Time
}

// Read notes counters as they are now. They must not be edited any more.
func (m *Meter[K]) Read(now time.Time, all map[K]Counts) {
	switch gap := now.Sub(m.nextAt); {
	case m.next == nil || gap > meterGap:
		*m = Meter[K]{next: all, nextAt: now}
	case gap >= meterStep:
		m.base, m.baseAt, m.next, m.nextAt = m.next, m.nextAt, all, now
	}
}

// Rate returns how fast the counters of k have grown. Counters that went back belong to something new under the same name.
func (m *Meter[K]) Rate(now time.Time, k K, c Counts) Rates {
	from, at := m.base, m.baseAt
	if from == nil {
		from, at = m.next, m.nextAt
	}
	seconds := now.Sub(at).Seconds()
	before, ok := from[k]
	if !ok || seconds <= 0 || c.Begun < before.Begun || c.Sent < before.Sent || c.Received < before.Received {
		return Rates{}
	}
	return Rates{
		New:      float64(c.Begun-before.Begun) / seconds,
		Sent:     float64(c.Sent-before.Sent) / seconds,
		Received: float64(c.Received-before.Received) / seconds,
		Known:    true,
	}
}

// Len is how many things were read last.
func (m *Meter[K]) Len() int { return len(m.next) }
