package traffic

import (
	"cmp"
	"iter"
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
	Listener registry.ListenerID // that the client connected to
	Service  registry.PortKey
	Client   netip.AddrPort
	Via      netip.AddrPort // of the proxy that the client came by, and that said who it is; zero if it came itself
	TLVs     string         // TCP: what that proxy said beside the addresses: see package proxyproto, Extensions
	Endpoint registry.Addr  // the last one that carried it; zero when none did
	Local    netip.AddrPort // of the proxy, towards that endpoint; zero without engine.Config.NoteLocal

	Began    time.Time     // when it was accepted
	Duration time.Duration // from then to its end
	Dialled  time.Duration // of that, until the first endpoint was reached, or none
	Attempts int           // endpoints that were tried
	Tried    string        // TCP: the first few endpoints that a client without one was not given, with their errors; one line
	Sent     uint64        // bytes from the client that were handed to the endpoint
	Received uint64        // bytes from the endpoint that were handed to the client
	Reason   Reason
}

// A Tally counts what one port of one service has carried over one protocol. It belongs to the
// claims on that port, outlives a change of its owner, and is counted up by any goroutine.
type Tally struct {
	Service  registry.PortKey
	Protocol registry.Protocol
	claims   int // that hold it; guarded by the tallies' mu

	Active         atomic.Int64                              // connections or sessions
	begun          atomic.Uint64                             // here: a predecessor has counted those that were adopted
	ended          atomic.Pointer[[NumReasons]atomic.Uint64] // nil until one has ended: most of ten thousand services may see no client
	Sent, Received atomic.Uint64                             // bytes, counted as they are written
	carried        atomic.Uint64                             // of begun, the connections and flows that the kernel carries
	DialFailures   atomic.Uint64                             // attempts that did not reach an endpoint, those that a later one made up for included
	Clients        Clients                                   // of those that are active and began while there was a limit for each client

	*datagrams // UDP only
}

// Begin counts the beginning of a connection or session, and returns how many are active with it.
func (t *Tally) Begin() int64 {
	t.begun.Add(1)
	return t.Active.Add(1)
}

// Carry counts n connections or flows that the kernel carries. They have begun; when they end is not known here, so they are never active.
func (t *Tally) Carry(n uint64) {
	t.begun.Add(n)
	t.carried.Add(n)
}

// End counts the end of what was active.
func (t *Tally) End(why Reason) {
	if t.ended.Load() == nil {
		t.ended.CompareAndSwap(nil, new([NumReasons]atomic.Uint64))
	}
	t.ended.Load()[why].Add(1)
	t.Active.Add(-1)
}

// endings tells how many have ended, by reason.
func (t *Tally) endings() (n [NumReasons]uint64) {
	if ended := t.ended.Load(); ended != nil {
		for r := range n {
			n[r] = ended[r].Load()
		}
	}
	return n
}

// Datagrams are what there is to count over UDP only.
type datagrams struct {
	DatagramsSent, DatagramsReceived atomic.Uint64
	Moved                            atomic.Uint64 // sessions, to another endpoint
	Dropped                          drops
}

// NewTally makes a tally that no claim holds. Most come from [Tallies.Hold].
func NewTally(service registry.PortKey, protocol registry.Protocol) *Tally {
	t := &Tally{Service: service, Protocol: protocol}
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

	Active                                          int64              // connections or sessions now
	Begun                                           uint64             // since the start
	Ended                                           [NumReasons]uint64 // by Reason
	Carried                                         uint64             // of Begun, those that the kernel carries: they are in no other number
	Sent, Received                                  uint64             // bytes to the endpoints, and to the clients
	DialFailures                                    uint64             // attempts that did not reach an endpoint
	SentDatagrams, ReceivedDatagrams, MovedSessions uint64
	Dropped                                         [NumDropReasons]uint64 // datagrams, by DropReason
}

// Tallies are all tallies there are. A tally that no claim holds stays as long as something that is
// counted in it is active.
type Tallies struct {
	mu      sync.Mutex // guards the fields below, and the claims of each
	All     map[TallyKey]*Tally
	leaving []*Tally // that no claim held when last seen
	enough  int      // of them, to look which can be forgotten
}

// A TallyKey is one port of one service, over one protocol.
type TallyKey struct {
	service  registry.PortKey
	protocol registry.Protocol
}

// Hold returns the tally of a port for a claim, which gives it back by release.
func (ts *Tallies) Hold(service registry.PortKey, protocol registry.Protocol) *Tally {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	key := TallyKey{service, protocol}
	t := ts.All[key]
	if t == nil {
		t = NewTally(service, protocol)
		ts.All[key] = t
	}
	t.claims++
	return t
}

// Release gives back what Hold gave out.
func (ts *Tallies) Release(t *Tally) {
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
func (ts *Tallies) forgetLocked() {
	ts.leaving = slices.DeleteFunc(ts.leaving, func(t *Tally) bool {
		idle := t.Active.Load() == 0
		if key := (TallyKey{t.Service, t.Protocol}); t.claims == 0 && idle && ts.All[key] == t {
			delete(ts.All, key)
		}
		return t.claims > 0 || idle
	})
}

// list returns all tallies, in no order. Who opens or closes a port waits for no more than this.
func (ts *Tallies) list() []*Tally {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.forgetLocked()
	all := make([]*Tally, 0, len(ts.All))
	for _, t := range ts.All {
		all = append(all, t)
	}
	return all
}

// EachActive yields how many connections each tally of TCP has that has some, in no order.
func (ts *Tallies) EachActive(yield func(int64) bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.All {
		if n := t.Active.Load(); n > 0 && t.Protocol == registry.TCP && !yield(n) {
			return
		}
	}
}

// Each yields a copy of each tally, in no order, and holds no lock meanwhile.
func (ts *Tallies) Each() iter.Seq[Totals] {
	return func(yield func(Totals) bool) {
		for _, t := range ts.list() {
			if !yield(t.Totals()) {
				return
			}
		}
	}
}

// Totals copies all tallies, in order.
func (ts *Tallies) Totals() []Totals {
	all := ts.list()
	slices.SortFunc(all, func(a, b *Tally) int {
		return cmp.Or(a.Service.Name.Compare(b.Service.Name), cmp.Compare(a.Service.Port, b.Service.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	totals := make([]Totals, len(all))
	for i, t := range all {
		totals[i] = t.Totals()
	}
	return totals
}

// Totals copies the tally. Its numbers need not be of one moment.
func (t *Tally) Totals() Totals {
	sum := Totals{
		Service:      t.Service,
		Protocol:     t.Protocol,
		Active:       t.Active.Load(),
		Begun:        t.begun.Load(),
		Carried:      t.carried.Load(),
		Ended:        t.endings(),
		Sent:         t.Sent.Load(),
		Received:     t.Received.Load(),
		DialFailures: t.DialFailures.Load(),
	}
	if t.datagrams == nil {
		return sum
	}
	sum.SentDatagrams, sum.ReceivedDatagrams, sum.MovedSessions = t.DatagramsSent.Load(), t.DatagramsReceived.Load(), t.Moved.Load()
	for r := range NumDropReasons {
		sum.Dropped[r] = t.Dropped[r].Load()
	}
	return sum
}
