package balance

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// Session affinity: a service may ask that a client is given the same endpoint each time it comes
// (sessionAffinity: ClientIP). A client is an IP address: its next connection comes from another port.
//
//   - An endpoint is remembered for a client from when it is offered, so that of several connections
//     that begin together none goes elsewhere.
//   - It is remembered for the service's timeout, counted from the last connection or session that
//     reached it. Neither traffic nor attempts that fail make it longer: else a client that goes
//     on asking could never leave an endpoint that is broken.
//   - It is forgotten when it fails this client, when it is passed over because it failed others, and
//     when it leaves the rotation. Then the client is given another, and that one again. Nothing else
//     that happens to the rotation matters, not even that its endpoints are listed in another order.
//   - An endpoint that leaves and comes back, as all do when a service is scaled to nothing and back,
//     is a new one: what a client had there is most likely gone. That a service wants affinity is
//     part of its claim, and outlasts all its endpoints.
//   - A timeout that is changed counts at once, also for those who are remembered already.
//
// As all that rotations know, it is known for each port of a service and each protocol by itself.

// An affinities table remembers who was given which endpoint, for all rotations of one balancer. Only
// services that ask for affinity come here, and only when a client of theirs begins: never for a
// datagram or a byte.
//
// A stranger can fill it (the source of a datagram can be forged), so it is bounded: for each rotation, so
// that one service cannot push out the clients of another, and in all. Those go first who began
// longest ago. An entry takes about 300 bytes, the whole table so 20 MB at most.
type affinities struct {
	most, mostEach int // entries in all, and of one rotation and protocol

	mu      sync.Mutex // guards the fields below, and clients of every rotation
	entries map[affinityKey]*affinity
	recent  list.List // of *affinity, those who began longest ago first
}

const (
	mostAffinities     = 1 << 16
	mostAffinitiesEach = 1 << 15
)

// An affinityKey names a client of a rotation.
type affinityKey struct {
	rotation *Rotation
	protocol registry.Protocol
	client   netip.Addr // unmapped, without zone
}

// An affinity is the endpoint that one client was given.
type affinity struct {
	key      affinityKey
	endpoint *Endpoint
	since    time.Duration // when the client last began, by the clock of Now
	timeout  time.Duration // as it was then; only for clearing up

	inAll, inRotation *list.Element
}

func newAffinities(most, mostEach int) *affinities {
	return &affinities{most: most, mostEach: mostEach, entries: make(map[affinityKey]*affinity)}
}

// ChooseFor begins the choice of an endpoint for a client. A service that wants affinity says for how long a client is
// remembered; 0 means not at all. The choice ends with the lifetime of the service on its port.
func (r *Rotation) ChooseFor(protocol registry.Protocol, client netip.Addr, affinity time.Duration, of *Lifetime) Choice {
	if affinity == 0 {
		chosen := r.Choose(protocol)
		chosen.Lifetime = of
		return chosen
	}
	return Choice{rotation: r, set: r.awake(), protocol: protocol, Lifetime: of, sticky: r.stickyTo(protocol, client, affinity)}
}

func (r *Rotation) stickyTo(protocol registry.Protocol, client netip.Addr, timeout time.Duration) *sticky {
	return &sticky{table: r.balancer.affinities, key: affinityKey{r, protocol, client.Unmap().WithZone("")}, timeout: timeout}
}

// A sticky is a client for whom an endpoint is remembered.
type sticky struct {
	table   *affinities
	key     affinityKey
	timeout time.Duration
}

// next offers the endpoint that the client was given before, or else the next one in turn, which is
// the client's from now on. (The cursor of the rotation moves only for the latter: else those who
// come back would decide what the others get.)
func (s *sticky) next(c *Choice) (*Endpoint, bool) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if a := s.table.entries[s.key]; a != nil {
		e := a.endpoint
		fails := e.Gone() || c.hasOffered(e) || monotonic.Now()-a.since >= s.timeout // who asks again was not served by it
		if !fails && !e.passesOver(s.key.protocol) {
			c.offer(e)
			return e, true
		}
		s.table.removeLocked(a)
	}
	e, ok := c.nextInTurn()
	if ok {
		s.table.addLocked(s, e)
	}
	return e, ok
}

// reached notes that the client has begun at e.
func (s *sticky) reached(e *Endpoint) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	a := s.table.entries[s.key]
	if a == nil || a.endpoint != e { // a connection that began beside this one fared otherwise
		return
	}
	a.since, a.timeout = monotonic.Now(), s.timeout
	s.table.recent.MoveToBack(a.inAll)
	s.key.clients().MoveToBack(a.inRotation)
}

// forget makes the client's next choice another than e.
func (s *sticky) forget(e *Endpoint) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if a := s.table.entries[s.key]; a != nil && a.endpoint == e {
		s.table.removeLocked(a)
	}
}

// clients are all whom the rotation of a key remembers, those who began longest ago first.
func (k affinityKey) clients() *list.List {
	l := &k.rotation.clients[k.protocol]
	if *l == nil {
		*l = list.New()
	}
	return *l
}

// maxExpired is how many entries are cleared up for each that is added: as two go for each that comes,
// those that are out of date do not pile up, and nobody has to come by just to sweep.
const maxExpired = 2

func (t *affinities) addLocked(s *sticky, e *Endpoint) {
	now := monotonic.Now()
	for _, l := range [...]*list.List{s.key.clients(), &t.recent} {
		for range maxExpired {
			if l.Len() == 0 {
				break
			}
			oldest := l.Front().Value.(*affinity)
			if now-oldest.since < oldest.timeout {
				break
			}
			t.removeLocked(oldest)
		}
	}
	t.makeRoomLocked(s.key)
	t.insertLocked(&affinity{key: s.key, endpoint: e, since: now, timeout: s.timeout})
}

// makeRoomLocked forgets those who began longest ago, where there is no room for one more.
func (t *affinities) makeRoomLocked(key affinityKey) {
	if l := key.clients(); l.Len() >= t.mostEach {
		t.removeLocked(l.Front().Value.(*affinity))
	}
	if t.recent.Len() >= t.most {
		t.removeLocked(t.recent.Front().Value.(*affinity))
	}
}

func (t *affinities) insertLocked(a *affinity) {
	a.inAll, a.inRotation = t.recent.PushBack(a), a.key.clients().PushBack(a)
	t.entries[a.key] = a
}

func (t *affinities) removeLocked(a *affinity) {
	delete(t.entries, a.key)
	t.recent.Remove(a.inAll)
	a.key.clients().Remove(a.inRotation)
}

// forgetAll forgets the clients of a rotation that nobody needs any more.
func (t *affinities) forgetAll(r *Rotation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range r.clients {
		for l != nil && l.Len() > 0 {
			t.removeLocked(l.Front().Value.(*affinity))
		}
	}
}
