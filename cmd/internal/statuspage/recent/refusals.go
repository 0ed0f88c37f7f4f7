package recent

import (
	"iter"
	"time"

	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A refusal is why clients of a port of a service, or over UDP their datagrams, are turned away.
type refusal struct {
	service  registry.PortKey
	protocol registry.Protocol
	code     string // of the reason
}

type grown struct {
	count uint64
	at    time.Time
}

// Refusals remember when clients were last turned away. The zero value has read nothing. It is for one goroutine at a time.
type Refusals struct{ seen map[refusal]grown }

// Read notes the counters. One that is new has grown, and so has one that went back: it belongs to something new under the same name.
func (rs *Refusals) Read(now time.Time, all iter.Seq[traffic.Totals]) {
	seen := make(map[refusal]grown)
	add := func(t *traffic.Totals, code string, n uint64) {
		if n == 0 {
			return
		}
		key := refusal{t.Service, t.Protocol, code}
		was := rs.seen[key]
		if n != was.count {
			was = grown{n, now}
		}
		seen[key] = was
	}
	for t := range all {
		if t.Protocol == registry.UDP { // a client that is turned away has no session
			for i, n := range t.Dropped {
				add(&t, traffic.DropReason(i).Code(), n)
			}
			continue
		}
		for r := traffic.FirstTurnedAway; r <= traffic.LastTurnedAway; r++ {
			add(&t, r.String(), t.Ended[r])
		}
	}
	rs.seen = seen
}

// Lately reports whether clients were turned away for a reason in the five minutes before.
func (rs *Refusals) Lately(now time.Time, service registry.PortKey, protocol registry.Protocol, code string) bool {
	was, ok := rs.seen[refusal{service, protocol, code}]
	return ok && now.Sub(was.at) < lately
}

const lately = 5 * time.Minute
