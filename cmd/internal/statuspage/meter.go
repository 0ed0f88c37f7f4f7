package statuspage

import "time"

// counts are counters of one thing at one moment.
type counts struct {
	active                int64  // connections and sessions now
	begun, sent, received uint64 // those that have begun; bytes to endpoints, and to clients
	unserved              uint64 // that ended because there was no endpoint
}

func (c counts) plus(d counts) counts {
	return counts{c.active + d.active, c.begun + d.begun, c.sent + d.sent, c.received + d.received, c.unserved + d.unserved}
}

// rates are what grew by the second.
type rates struct {
	New, Sent, Received float64
	Known               bool // false at the first look
}

func (r rates) plus(s rates) rates {
	return rates{r.New + s.New, r.Sent + s.Sent, r.Received + s.Received, r.Known || s.Known}
}

// A rate is over at least meterStep, and over two steps at most while there are viewers. After meterGap without one, it
// begins anew.
const (
	meterStep = 5 * time.Second
	meterGap  = time.Minute
)

// A meter makes rates of counters that are read now and then.
type meter[K comparable] struct {
	base, next     map[K]counts // nil: not read yet
	baseAt, nextAt time.Time
}

// read notes counters as they are now. They must not be edited any more.
func (m *meter[K]) read(now time.Time, all map[K]counts) {
	switch gap := now.Sub(m.nextAt); {
	case m.next == nil || gap > meterGap:
		*m = meter[K]{next: all, nextAt: now}
	case gap >= meterStep:
		m.base, m.baseAt, m.next, m.nextAt = m.next, m.nextAt, all, now
	}
}

// rate returns how fast the counters of k have grown. Counters that went back belong to something new under the same name.
func (m *meter[K]) rate(now time.Time, k K, c counts) rates {
	from, at := m.base, m.baseAt
	if from == nil {
		from, at = m.next, m.nextAt
	}
	seconds := now.Sub(at).Seconds()
	before, ok := from[k]
	if !ok || seconds <= 0 || c.begun < before.begun || c.sent < before.sent || c.received < before.received {
		return rates{}
	}
	return rates{
		New:      float64(c.begun-before.begun) / seconds,
		Sent:     float64(c.sent-before.sent) / seconds,
		Received: float64(c.received-before.received) / seconds,
		Known:    true,
	}
}
