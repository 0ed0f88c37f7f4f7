package balance

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/lograte"
	"kubeproxy/proxy/balance/affinity"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/choosing"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A LoadBalancerRR knows the endpoints of every port of every service, and gives them out: in turn, unless the service wants
// another algorithm. It belongs to one Proxier, which gives it the endpoints of each batch. It is no handler itself.
//
// Choosing takes no lock, but for the first client of a rotation. An update replaces a rotation's endpoints and
// its cursor together, as one value, so that the two never disagree (D32).
type LoadBalancerRR struct {
	randomStart bool
	OnRemoval   Removal          // of endpoints; set before the first batch
	Allowed     []netip.Prefix   // where endpoints may be, none: anywhere; set before the first batch
	Balance     registry.Balance // of services that name none; unsaid: round robin; set before the first batch
	Checker     *checks.Checker  // of endpoints whose services want it; nil: none are checked; set before the first batch
	Changed     func(*Rotation)  // called after each change of the endpoints of a rotation, or of their health, under locks: it must not call back; may be nil; set before the first batch
	affinities  *affinity.Table[*Endpoint]
	outages     lograte.Limiter[outage]           // of lines about endpoints that do not answer, or answer again
	unused      lograte.Limiter[registry.PortKey] // of lines about records with endpoints that are not allowed

	mu       sync.Mutex                    // guards the fields below
	services map[registry.Name][]*Rotation // those of a service by the names of their ports: most often one
	leaving  []*Rotation                   // have lost all their endpoints, and still offer them until letGo
}

// Affinities that are remembered, in all, and for one rotation and protocol. They take 20 MB at most.
const (
	mostAffinities     = 1 << 16
	mostAffinitiesEach = 1 << 15
)

// NewLoadBalancerRR returns a balancer without endpoints. With randomStart each rotation begins at
// an endpoint of its own choice, so that a fleet of nodes does not herd on the first endpoint of
// every record; without it a rotation begins at the first, as in v0.4.
func NewLoadBalancerRR(randomStart bool) *LoadBalancerRR {
	return &LoadBalancerRR{
		randomStart: randomStart,
		affinities:  affinity.NewTable[*Endpoint](mostAffinities, mostAffinitiesEach),
		services:    make(map[registry.Name][]*Rotation),
	}
}

// SetEndpoints applies changes of endpoints records; nil is a record that is gone. The Proxier calls it before it opens
// the ports of the same batch, and letGo after that: a rotation that loses all its endpoints offers them until then.
// Otherwise a service that goes together with its endpoints would, for a moment, own its port with nothing behind it,
// and turn away a client of the service that takes the port over.
//
// The lock is held for one record at a time, so that Status does not wait for a whole batch.
func (lb *LoadBalancerRR) SetEndpoints(changed map[registry.Name]*registry.Endpoints) {
	for name, endpoints := range changed {
		if endpoints == nil {
			endpoints = &registry.Endpoints{} // they are gone, and so all rotations are empty
		}
		lb.update(name, endpoints)
	}
}

// update applies the endpoints of one record.
func (lb *LoadBalancerRR) update(name registry.Name, endpoints *registry.Endpoints) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for _, r := range lb.services[name] {
		if endpoints.Of(r.Key.Port).Len() == 0 {
			lb.leaving = append(lb.leaving, r)
		}
	}
	for _, p := range endpoints.ByPort {
		lb.rotationLocked(registry.PortKey{Name: name, Port: p.Port}).replace(p.Addrs, endpoints.Weights, lb.randomStart, lb.OnRemoval)
	}
}

// Rotations counts the rotations that there are: one for each port of a service that is claimed, or has endpoints.
func (lb *LoadBalancerRR) Rotations() (n int) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for _, byPort := range lb.services {
		n += len(byPort)
	}
	return n
}

// LetGo empties the rotations that setEndpoints left without endpoints.
func (lb *LoadBalancerRR) LetGo() {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.letGoLocked()
}

func (lb *LoadBalancerRR) letGoLocked() {
	for _, r := range lb.leaving {
		r.replace(registry.Addrs{}, "", lb.randomStart, lb.OnRemoval)
		lb.forgetUnusedLocked(r)
	}
	lb.leaving = nil
}

// Hold returns the rotation of one port, which may be empty, and keeps it the same value for every
// caller until [LoadBalancerRR.release] has been called as often: endpoints come and go inside it.
func (lb *LoadBalancerRR) Hold(key registry.PortKey) *Rotation {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	r := lb.rotationLocked(key)
	r.holders++
	return r
}

// Release gives back what hold gave out. A rotation that nobody holds and that has no endpoints is
// forgotten, so that memory follows what the registry holds now.
func (lb *LoadBalancerRR) Release(r *Rotation) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	r.holders--
	lb.forgetUnusedLocked(r)
}

func (lb *LoadBalancerRR) rotationLocked(key registry.PortKey) *Rotation {
	at, ok := lb.findLocked(key)
	if ok {
		return lb.services[key.Name][at]
	}
	r := &Rotation{Key: key, balancer: lb}
	r.set.Store(&noEndpoints)
	lb.services[key.Name] = slices.Insert(lb.services[key.Name], at, r)
	return r
}

// findLocked tells where among the rotations of its service one is, or would be.
func (lb *LoadBalancerRR) findLocked(key registry.PortKey) (at int, ok bool) {
	return slices.BinarySearchFunc(lb.services[key.Name], key.Port, func(r *Rotation, port string) int { return cmp.Compare(r.Key.Port, port) })
}

func (lb *LoadBalancerRR) forgetUnusedLocked(r *Rotation) {
	if r.holders > 0 || !r.IsEmpty() {
		return
	}
	for protocol := range r.clients {
		lb.affinities.ForgetAll(&r.clients[protocol])
	}
	rotations := lb.services[r.Key.Name]
	switch at, ok := lb.findLocked(r.Key); {
	case !ok || rotations[at] != r: // it is forgotten already
	case len(rotations) == 1:
		delete(lb.services, r.Key.Name)
	default:
		lb.services[r.Key.Name] = slices.Delete(rotations, at, at+1)
	}
}

// A Rotation gives out the endpoints of one port of one service in turn. The rotation is stable;
// the set of endpoints inside it is replaced.
type Rotation struct {
	Key     registry.PortKey
	mu      sync.Mutex                  // held where a set makes way for another one
	set     atomic.Pointer[endpointSet] // never nil
	holders int                         // guarded by the balancer's mu
	checks  *[2]check                   // by Protocol; nil: none are checked, as in most rotations; guarded by mu

	balancer *LoadBalancerRR     // whose it is
	clients  [2]affinity.Clients // those whom it remembers of this rotation, by Protocol
}

// An endpointSet is a rotation's endpoints together with the cursor that walks them. The list never
// changes; a change of endpoints makes a new set.
//
// A set sleeps until its first client comes: so long it is only the addresses, as the record lists them. Of ten thousand
// services a node may see clients of a few, and a change of the others leaves little behind for the garbage collector.
type endpointSet struct {
	endpoints []*Endpoint
	allowed   int // of them, by their addresses
	cursor    atomic.Uint64
	rosters   [2]atomic.Pointer[roster]     // by Protocol; nil until a client has to be given another than the one in turn
	ring      atomic.Pointer[choosing.Ring] // nil until a client is chosen for by its address
	addrs     registry.Addrs                // what endpoints are made of when the set wakes up; none once they are made

	record  registry.Weights // of the record
	weights []int            // of the endpoints, by their positions; nil while the set sleeps, and if all are alike: 1, or 0
	shares  *choosing.Shares // of the endpoints, by their weights; nil without those
}

// noEndpoints is the set of every rotation that has had no endpoints yet. It is empty, so nothing is written to it.
var noEndpoints endpointSet

func (s *endpointSet) isAsleep() bool { return s.addrs.Len() > 0 }

// roster returns what the set knows of who can be offered over a protocol. To make it costs as much as the set has
// endpoints, once; a set that follows one with a roster has one from the start.
func (s *endpointSet) roster(protocol registry.Protocol) *roster {
	r := &s.rosters[protocol]
	if r.Load() == nil {
		r.CompareAndSwap(nil, newRoster(s, protocol))
	}
	return r.Load()
}

// replace makes addrs the endpoints of the rotation, in that order. Where clients have come, the same addresses
// in another order change nothing; else the rotation goes on with the first surviving endpoint at or
// after the next one, and what was known of the health of survivors stays known (v0.4 began again
// at the first on every change). Only the balancer calls it, under its lock.
func (r *Rotation) replace(addrs registry.Addrs, weights registry.Weights, randomStart bool, onRemoval Removal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.set.Load()
	position, gone := old.compare(addrs)
	if len(position) == len(old.endpoints) && len(position) == addrs.Len() && old.record == weights && !old.isAsleep() {
		return
	}
	set := &endpointSet{addrs: addrs, record: weights}
	if len(position) > 0 || r.isChecked() { // the others must be there beside them, or are to be checked
		set = awoken(r, addrs, weights, position)
		for protocol := range old.rosters {
			if old.rosters[protocol].Load() != nil {
				set.roster(registry.Protocol(protocol)) // here, and not while a client waits
			}
		}
		if old.ring.Load() != nil {
			set.hashRing()
		}
	}
	if randomStart && addrs.Len() > 0 {
		set.cursor.Store(rand.Uint64N(uint64(addrs.Len())))
	}
	if at, ok := old.nextOf(position); ok {
		set.cursor.Store(uint64(at))
	}
	r.set.Store(set)
	defer r.changed()
	for _, e := range set.endpoints {
		r.watchLocked(e)
	}
	for _, e := range gone {
		r.unwatchLocked(e)
		x := e.Record() // also of one that had none: a client may be choosing it just now
		x.gone.Store(true)
		x.Lifetime.End(onRemoval, traffic.EndpointRemoved, 0)
	}
	if v := glog.V(3); v {
		v.Infof("endpoints of %s: %d, of them known to clients %d, gone %d", r.Key, addrs.Len(), len(position), len(gone))
	}
}

// compare finds the endpoints that stay, with their positions among addrs, and those that go.
func (s *endpointSet) compare(addrs registry.Addrs) (position map[*Endpoint]int, gone map[registry.Addr]*Endpoint) {
	gone = make(map[registry.Addr]*Endpoint, len(s.endpoints))
	for _, e := range s.endpoints {
		gone[e.Addr] = e
	}
	position = make(map[*Endpoint]int)
	i := 0
	for addr := range addrs.All() {
		if e := gone[addr]; e != nil {
			delete(gone, addr)
			position[e] = i
		}
		i++
	}
	return position, gone
}

// nextOf returns the position of the endpoint whose turn it is, of those that stay; false: none does.
func (s *endpointSet) nextOf(position map[*Endpoint]int) (at int, ok bool) {
	n := uint64(len(s.endpoints))
	for i, next := uint64(0), s.cursor.Load(); i < n; i++ {
		if at, ok := position[s.endpoints[(next+i)%n]]; ok {
			return at, true
		}
	}
	return 0, false
}

// Endpoints returns the endpoints of the rotation, in the order of the record.
func (r *Rotation) Endpoints() []*Endpoint { return r.awake().endpoints }

// awake returns the set that clients choose from. Only the first of them has to wait for a lock.
func (r *Rotation) awake() *endpointSet {
	if set := r.set.Load(); !set.isAsleep() {
		return set
	}
	r.mu.Lock() // or two clients would make endpoints, of which later sets keep only those of one
	defer r.mu.Unlock()
	return r.awakeLocked()
}

func (r *Rotation) awakeLocked() *endpointSet {
	asleep := r.set.Load()
	if !asleep.isAsleep() {
		return asleep
	}
	set := awoken(r, asleep.addrs, asleep.record, nil)
	set.cursor.Store(asleep.cursor.Load())
	r.set.Store(set)
	return set
}

// awoken makes a set of endpoints that clients can be given: those that stay, at their positions, and new ones.
func awoken(r *Rotation, addrs registry.Addrs, weights registry.Weights, position map[*Endpoint]int) *endpointSet {
	set := &endpointSet{endpoints: make([]*Endpoint, addrs.Len()), record: weights}
	for e, at := range position {
		set.endpoints[at] = e
	}
	i, forbidden, drained := 0, 0, 0
	known := weights.Of(addrs)
	for addr := range addrs.All() {
		if set.endpoints[i] == nil {
			// Or the endpoint, which a connection or a client's affinity may keep for long, would keep the record's whole list.
			addr.Host = strings.Clone(addr.Host)
			allowed := len(r.balancer.Allowed) == 0 || addr.Host != "" || registry.Within(r.balancer.Allowed, addr.IP.Addr())
			set.endpoints[i] = &Endpoint{Addr: addr, Rotation: r, forbidden: !allowed}
		}
		e, weight := set.endpoints[i], 1
		if known != nil {
			weight = known[i]
		}
		e.at.Store(int32(i))
		e.weight.Store(int32(weight))
		switch {
		case e.forbidden:
			forbidden++
		case weight == 0:
			drained++
		}
		i++
	}
	set.allowed = i - forbidden - drained
	if known != nil {
		if shares := choosing.NewShares(known); !shares.AreNone() {
			set.weights, set.shares = known, shares
		}
	}
	if forbidden > 0 && forbidden < i { // when all are, those that turn clients away for it say so
		if note, ok := r.balancer.unused.Allow(r.Key); ok {
			glog.Errorf("%s: %d of %d endpoints are not used: %v%s", r.Key, forbidden, i, registry.ErrNotAllowed, note)
		}
	}
	return set
}

// Choose begins the choice of an endpoint for one client, whoever it is, by round robin: a snapshot, and one atomic add.
// The first client of a set has it awoken.
func (r *Rotation) Choose(protocol registry.Protocol) Choice {
	c := Choice{rotation: r, set: r.awake(), protocol: protocol}
	c.drawn = c.draw()
	return c
}

// ChooseFor begins the choice of an endpoint for a client, on the terms of its service. The choice ends with the lifetime of the
// service on its port.
func (r *Rotation) ChooseFor(protocol registry.Protocol, client netip.Addr, terms *registry.Terms, of *Lifetime) (c Choice) {
	c.begin(r, protocol, client, terms, of)
	if c.sticky == nil { // else it is a matter of what is remembered
		c.drawn = c.draw()
	}
	return c
}

// begin makes c the choice of a client which has been offered nothing. A Choice is large, so it is made in place.
func (c *Choice) begin(r *Rotation, protocol registry.Protocol, client netip.Addr, terms *registry.Terms, of *Lifetime) {
	c.rotation, c.set, c.protocol, c.Lifetime = r, r.awake(), protocol, of
	c.balance = r.balancer.Algorithm(terms.Balance)
	if c.balance == registry.SourceAddress {
		c.client = choosing.Hash(client)
	}
	if terms.AffinityTimeout > 0 {
		c.sticky = r.stickyTo(protocol, client, terms.AffinityTimeout)
	}
}

func (r *Rotation) stickyTo(protocol registry.Protocol, client netip.Addr, timeout time.Duration) *affinity.Client[*Endpoint] {
	return r.balancer.affinities.Client(&r.clients[protocol], client, timeout)
}

// IsEmpty reports whether there is no endpoint to choose.
func (r *Rotation) IsEmpty() bool {
	set := r.set.Load()
	return len(set.endpoints) == 0 && !set.isAsleep()
}

// MaxOffers is how many endpoints a client is offered. Sixteen that fail one after the other are an outage, and not bad
// luck. The bound is what a client can cost when a record lists thousands of endpoints that no route leads to; each
// of those that failed is ejected, so the next clients are offered others.
const MaxOffers = 16

// A Choice offers one client the endpoints of a rotation, at most MaxOffers of them and each at most once: the next one
// if the one before did not answer. When the endpoints change meanwhile it goes on with the new ones. It offers
// none any more when the service has left its port.
//
// An offer costs the same however many endpoints there are, and however many of them are ejected. An
// ejected one is offered only when all that are ready were: then the one that returns first.
type Choice struct {
	rotation *Rotation
	set      *endpointSet
	protocol registry.Protocol           // whose health counts
	balance  registry.Balance            // the algorithm; unsaid: round robin
	client   uint64                      // the hash of the client's address, if the algorithm is SourceAddress
	Lifetime *Lifetime                   // of the service on its port; nil when it does not matter
	sticky   *affinity.Client[*Endpoint] // the client, if its service wants affinity
	drawn    *Endpoint                   // the draw that choose made for a client without affinity, until it is used
	Offers   int                         // how many there were
	offered  []*Endpoint                 // what next has returned so far, but for the last
	last     *Endpoint
}

// Next returns the endpoint to try now, or false when there is none: the one that the client was given
// before, if it is to have it again, or the next one in turn.
func (c *Choice) Next() (*Endpoint, bool) {
	if e := c.drawn; e != nil && !e.passesOver(c.protocol) { // most often: the first, and well
		c.drawn, c.last, c.Offers = nil, e, 1
		return e, true
	}
	// A service that leaves its port may still have a first offer: until its successor owns the port, clients come to it.
	if c.Offers == MaxOffers || c.Offers > 0 && c.Lifetime.IsOver() {
		return nil, false
	}
	if set := c.rotation.awake(); set != c.set {
		c.set, c.drawn = set, nil
	}
	if c.sticky != nil {
		return c.sticky.Endpoint(c.takeAgain, c.nextInTurn)
	}
	return c.nextInTurn()
}

// takeAgain offers the endpoint that the client was given before, unless it left or is passed over. Who asks again was
// not served by it.
func (c *Choice) takeAgain(e *Endpoint) bool {
	if e.Gone() || c.hasOffered(e) || e.passesOver(c.protocol) {
		return false
	}
	c.offer(e)
	return true
}

// nextInTurn offers the next endpoint in turn. One that is ejected is passed over while there is another.
func (c *Choice) nextInTurn() (*Endpoint, bool) {
	e := c.drawn
	c.drawn = nil
	if e == nil {
		if e = c.draw(); e == nil {
			return nil, false
		}
	}
	if c.hasOffered(e) || e.passesOver(c.protocol) {
		if e = c.another(); e == nil {
			return nil, false
		}
	}
	c.offer(e)
	return e, true
}

// IsLast reports whether no other endpoint is offered after the last one.
func (c *Choice) IsLast() bool { return c.Offers >= min(c.set.allowed, MaxOffers) }

func (c *Choice) offer(e *Endpoint) {
	if c.last != nil {
		c.offered = append(c.offered, c.last)
	}
	c.last = e
	c.Offers++
}

func (c *Choice) hasOffered(e *Endpoint) bool { return e == c.last || slices.Contains(c.offered, e) }

// Reached notes that the client has begun at an endpoint that it was offered.
func (c *Choice) Reached(e *Endpoint) {
	if c.sticky != nil {
		c.sticky.Reached(e)
	}
}

// Failed notes that an endpoint that was offered refused this client, or stayed silent.
func (c *Choice) Failed(e *Endpoint) {
	e.Failed(c.protocol)
	c.leave(e)
}

// Unusable notes that an endpoint that was offered cannot be used for now, through no fault of its own: its name was
// not resolved, or its address is refused by our own rules. It is ejected for a fixed time, and its health stays as it was.
func (c *Choice) Unusable(e *Endpoint) {
	e.setAside(c.protocol)
	c.leave(e)
}

// leave makes the client's next choice another than e.
func (c *Choice) leave(e *Endpoint) {
	if c.sticky != nil {
		c.sticky.Forget(e)
	}
}
