package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/registry"
)

// An Ending tells of one TCP connection or UDP session that has ended, or of a client that was turned
// away: what a line of the connection log says.
type Ending struct {
	Protocol registry.Protocol
	Service  registry.PortKey
	Port     uint16 // that the client connected to
	Client   netip.AddrPort
	Endpoint registry.Addr // the last one that carried it; zero when none did

	Began    time.Time     // when it was accepted
	Duration time.Duration // from then to its end
	Dialled  time.Duration // of that, until the first endpoint was reached, or none
	Attempts int           // endpoints that were tried
	Sent     uint64        // bytes from the client that were handed to the endpoint
	Received uint64        // bytes from the endpoint that were handed to the client
	Reason   Reason
}

// A tally counts what one port of one service has carried over one protocol. It belongs to the
// claims on that port, outlives a change of its owner, and is counted up by any goroutine.
type tally struct {
	service  registry.PortKey
	protocol registry.Protocol
	claims   int // that hold it; guarded by the tallies' mu

	active         atomic.Int64                           // connections or sessions
	ended          atomic.Pointer[[reasons]atomic.Uint64] // nil until one has ended: most of ten thousand services may see no client
	sent, received atomic.Uint64                          // bytes, counted as they are written
	dialFailures   atomic.Uint64                          // attempts that did not reach an endpoint, those that a later one made up for included

	*datagrams // UDP only
}

// end counts the end of what was active.
func (t *tally) end(why Reason) {
	if t.ended.Load() == nil {
		t.ended.CompareAndSwap(nil, new([reasons]atomic.Uint64))
	}
	t.ended.Load()[why].Add(1)
	t.active.Add(-1)
}

// endings tells how many have ended, by reason.
func (t *tally) endings() (n [reasons]uint64) {
	if ended := t.ended.Load(); ended != nil {
		for r := range n {
			n[r] = ended[r].Load()
		}
	}
	return n
}

// Datagrams are what there is to count over UDP only.
type datagrams struct {
	datagramsSent, datagramsReceived atomic.Uint64
	moved                            atomic.Uint64 // sessions, to another endpoint
	dropped                          drops
}

func newTally(service registry.PortKey, protocol registry.Protocol) *tally {
	t := &tally{service: service, protocol: protocol}
	if protocol == registry.UDP {
		t.datagrams = new(datagrams)
	}
	return t
}

// Totals are what one port of one service has carried over one protocol since it was first claimed. It
// is a copy.
type Totals struct {
	Service  registry.PortKey
	Protocol registry.Protocol

	Active                                          int64           // connections or sessions now
	Ended                                           [reasons]uint64 // by Reason
	Sent, Received                                  uint64          // bytes to the endpoints, and to the clients
	DialFailures                                    uint64          // attempts that did not reach an endpoint
	SentDatagrams, ReceivedDatagrams, MovedSessions uint64
	Dropped                                         [dropReasons]uint64 // datagrams, by DropReason
}

// tallies are all tallies there are. A tally that no claim holds stays as long as something that is
// counted in it is active.
type tallies struct {
	mu      sync.Mutex // guards the fields below, and the claims of each
	all     map[tallyKey]*tally
	leaving []*tally // that no claim held when last seen
	enough  int      // of them, to look which can be forgotten
}

type tallyKey struct {
	service  registry.PortKey
	protocol registry.Protocol
}

// hold returns the tally of a port for a claim, which gives it back by release.
func (ts *tallies) hold(service registry.PortKey, protocol registry.Protocol) *tally {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	key := tallyKey{service, protocol}
	t := ts.all[key]
	if t == nil {
		t = newTally(service, protocol)
		ts.all[key] = t
	}
	t.claims++
	return t
}

func (ts *tallies) release(t *tally) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.claims--; t.claims > 0 {
		return
	}
	ts.leaving = append(ts.leaving, t)
	if len(ts.leaving) > ts.enough {
		ts.forgetLocked()
		ts.enough = 2*len(ts.leaving) + 16 // so that a look at all of them is worth it
	}
}

// forgetLocked forgets the tallies that nothing will be counted in any more.
func (ts *tallies) forgetLocked() {
	ts.leaving = slices.DeleteFunc(ts.leaving, func(t *tally) bool {
		idle := t.active.Load() == 0
		if key := (tallyKey{t.service, t.protocol}); t.claims == 0 && idle && ts.all[key] == t {
			delete(ts.all, key)
		}
		return t.claims > 0 || idle
	})
}

// totals copies all tallies, in order.
func (ts *tallies) totals() []Totals {
	ts.mu.Lock()
	ts.forgetLocked()
	all := make([]*tally, 0, len(ts.all))
	for _, t := range ts.all {
		all = append(all, t)
	}
	ts.mu.Unlock() // nobody who opens or closes a port is to wait for the rest
	slices.SortFunc(all, func(a, b *tally) int {
		return cmp.Or(a.service.Name.Compare(b.service.Name), cmp.Compare(a.service.Port, b.service.Port), cmp.Compare(a.protocol, b.protocol))
	})
	totals := make([]Totals, len(all))
	for i, t := range all {
		totals[i] = t.totals()
	}
	return totals
}

func (t *tally) totals() Totals {
	sum := Totals{
		Service:      t.service,
		Protocol:     t.protocol,
		Active:       t.active.Load(),
		Ended:        t.endings(),
		Sent:         t.sent.Load(),
		Received:     t.received.Load(),
		DialFailures: t.dialFailures.Load(),
	}
	if t.datagrams == nil {
		return sum
	}
	sum.SentDatagrams, sum.ReceivedDatagrams, sum.MovedSessions = t.datagramsSent.Load(), t.datagramsReceived.Load(), t.moved.Load()
	for r := range dropReasons {
		sum.Dropped[r] = t.dropped[r].Load()
	}
	return sum
}
