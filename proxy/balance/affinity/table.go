package affinity

import (
	"container/list"
	"iter"
	"net/netip"
	"sync"
	"time"

	"kubeproxy/internal/monotonic"
)

// A Table maps clients to the endpoint, an E, that they were given, for all rotations of one balancer. It is used for services with
// affinity only, and only when a connection or session begins: never for a datagram or a byte.
//
// A stranger can fill it (the source of a datagram can be forged), so it is bounded: for each [Clients], so that one
// service cannot push out the clients of another, and in all. The client that began longest ago is evicted first. An entry takes
// about 300 bytes. All methods may be called by any number of goroutines.
type Table[E comparable] struct {
	most, mostEach int // entries in all, and of one Clients

	mu      sync.Mutex // guards the fields below, and every Clients
	entries map[key]*entry[E]
	recent  list.List // of *entry, the oldest beginning first
}

// NewTable returns an empty table for most clients in all, and for mostEach of each Clients.
func NewTable[E comparable](most, mostEach int) *Table[E] {
	return &Table[E]{most: most, mostEach: mostEach, entries: make(map[key]*entry[E])}
}

// Clients are the clients in one table of one rotation over one protocol. The zero value is ready to use, and must
// not be copied after its first use.
type Clients struct {
	order *list.List // of *entry, the oldest beginning first; nil: none yet; guarded by the table's mu
}

// forgotten is the order of clients whose rotation is no longer used. Nobody would clear up what it remembered.
var forgotten = new(list.List)

// A key names a client of a rotation.
type key struct {
	of   *Clients
	addr netip.Addr // unmapped, without zone
}

// An entry is the endpoint that one client was given.
type entry[E comparable] struct {
	key      key
	endpoint E
	since    time.Duration // when the client last began, by the monotonic clock
	timeout  time.Duration // as it was then; only for clearing up

	inAll, inClients *list.Element
}

// A Client is one client of the table.
type Client[E comparable] struct {
	table   *Table[E]
	key     key
	timeout time.Duration
	given   E // by the last call of Endpoint
}

// Client returns the client of an address. Its endpoint is remembered for timeout.
func (t *Table[E]) Client(of *Clients, addr netip.Addr, timeout time.Duration) *Client[E] {
	return &Client[E]{table: t, key: keyOf(of, addr), timeout: timeout}
}

func keyOf(of *Clients, addr netip.Addr) key { return key{of, addr.Unmap().WithZone("")} }

// Endpoint returns the endpoint that the client was given before, if again accepts it, or else what next returns, which
// is the client's from now on. It calls next only for the latter: else those who come back would decide what the others
// get. Both run under the lock of the table, and must not call it.
func (c *Client[E]) Endpoint(again func(E) bool, next func() (E, bool)) (E, bool) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if x := c.table.entries[c.key]; x != nil {
		if monotonic.Now()-x.since < c.timeout && again(x.endpoint) {
			c.given = x.endpoint
			return x.endpoint, true
		}
		c.table.removeLocked(x)
	}
	e, ok := next()
	if ok {
		c.given = e
		c.rememberLocked(e)
	}
	return e, ok
}

func (c *Client[E]) rememberLocked(e E) {
	now := monotonic.Now()
	c.table.clearUpLocked(c.key.of, now)
	c.table.insertLocked(&entry[E]{key: c.key, endpoint: e, since: now, timeout: c.timeout})
}

// Reached notes that the client has begun at e. That need not be the last endpoint that it was given: one may answer late, when another is being
// tried already.
func (c *Client[E]) Reached(e E) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	x := c.table.entries[c.key]
	switch {
	case x == nil:
		c.rememberLocked(e)
		return
	case x.endpoint != e && x.endpoint != c.given: // a connection that began beside this one fared otherwise
		return
	}
	x.endpoint, x.since, x.timeout = e, monotonic.Now(), c.timeout
	c.table.recent.MoveToBack(x.inAll)
	c.key.of.order.MoveToBack(x.inClients)
}

// Forget makes the client's next endpoint another than e.
func (c *Client[E]) Forget(e E) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if x := c.table.entries[c.key]; x != nil && x.endpoint == e {
		c.table.removeLocked(x)
	}
}

// maxExpired is how many entries are cleared up for each that is added: as two go for each that comes,
// those that are out of date do not pile up, and no goroutine has to sweep.
const maxExpired = 2

func (t *Table[E]) clearUpLocked(of *Clients, now time.Duration) {
	for _, l := range [...]*list.List{of.order, &t.recent} {
		for range maxExpired {
			if l == nil || l.Len() == 0 {
				break
			}
			oldest := l.Front().Value.(*entry[E])
			if now-oldest.since < oldest.timeout {
				break
			}
			t.removeLocked(oldest)
		}
	}
}

// insertLocked adds an entry, and forgets those who began longest ago where there is no room for one more.
func (t *Table[E]) insertLocked(x *entry[E]) {
	of := x.key.of
	switch of.order {
	case forgotten:
		return
	case nil:
		of.order = list.New()
	}
	if of.order.Len() >= t.mostEach {
		t.removeLocked(of.order.Front().Value.(*entry[E]))
	}
	if t.recent.Len() >= t.most {
		t.removeLocked(t.recent.Front().Value.(*entry[E]))
	}
	x.inAll, x.inClients = t.recent.PushBack(x), of.order.PushBack(x)
	t.entries[x.key] = x
}

func (t *Table[E]) removeLocked(x *entry[E]) {
	delete(t.entries, x.key)
	t.recent.Remove(x.inAll)
	x.key.of.order.Remove(x.inClients)
}

// ForgetAll forgets all clients of a rotation that is no longer used.
func (t *Table[E]) ForgetAll(of *Clients) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of.order != nil && of.order.Len() > 0 {
		t.removeLocked(of.order.Front().Value.(*entry[E]))
	}
	of.order = forgotten
}

// A Known is what a table knows of one client, for a table of another process.
type Known[E comparable] struct {
	Addr     netip.Addr
	Endpoint E
	Age      time.Duration // since the client last began
	Timeout  time.Duration // as it was then
}

// All yields what is known of clients, those who began longest ago first. The table is locked meanwhile.
func (t *Table[E]) All(of *Clients) iter.Seq[Known[E]] {
	return func(yield func(Known[E]) bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.order == nil {
			return
		}
		now := monotonic.Now()
		for next := of.order.Front(); next != nil; next = next.Next() {
			x := next.Value.(*entry[E])
			if !yield(Known[E]{x.key.addr, x.endpoint, now - x.since, x.timeout}) {
				return
			}
		}
	}
}

// Adopt remembers a client that another process knew. A client that the table knows already keeps its endpoint.
func (t *Table[E]) Adopt(of *Clients, known Known[E]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := keyOf(of, known.Addr); t.entries[k] == nil {
		t.insertLocked(&entry[E]{key: k, endpoint: known.Endpoint, since: monotonic.Now() - known.Age, timeout: known.Timeout})
	}
}
