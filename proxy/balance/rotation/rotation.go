package rotation

import (
	"cmp"
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"kubeproxy/internal/lograte"
	"kubeproxy/proxy/balance/affinity"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/news"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Rules are what all rotations of one balancer have in common. The exported fields are set before the first endpoints come.
type Rules struct {
	OnRemoval removal.Policy   // of endpoints whose service does not say
	Allowed   []netip.Prefix   // where endpoints may be; none: anywhere
	Balance   registry.Balance // of services that name none; unsaid: round robin
	Checker   *checks.Checker  // of endpoints whose services want it; nil: none are checked
	Node      registry.Node    // the one that clients come to
	Changed   func(*Rotation)  // called after each change of the endpoints of a rotation, or of their health, under locks: it must not call back; may be nil

	randomStart bool
	affinities  *affinity.Table[*Endpoint]
	outages     lograte.Limiter[outage]           // of lines about endpoints that do not answer, or answer again
	spills      lograte.Limiter[spill]            // of lines about clients that are given endpoints farther away, or near ones again
	unused      lograte.Limiter[registry.PortKey] // of lines about records with endpoints that are not allowed
	ignored     lograte.Limiter[registry.PortKey] // of lines about checks that fail for all endpoints
	departed    departed
	prepared    atomic.Int64 // endpoints of large sets that are ready
	news        news.Room[*Rotation]
}

// Affinities that are remembered, in all, and for one rotation and protocol. They take 20 MB at most.
const (
	mostAffinities     = 1 << 16
	mostAffinitiesEach = 1 << 15
)

// NewRules returns rules that allow all endpoints and check none. With randomStart each rotation begins at an endpoint of its own choice, so that
// a fleet of nodes does not herd on the first endpoint of every record; without it a rotation begins at the first, as in v0.4.
func NewRules(randomStart bool) *Rules {
	return &Rules{randomStart: randomStart, affinities: affinity.NewTable[*Endpoint](mostAffinities, mostAffinitiesEach)}
}

// Algorithm returns the algorithm of a service whose record names this one.
func (r *Rules) Algorithm(named registry.Balance) registry.Balance {
	return cmp.Or(named, r.Balance, registry.RoundRobin)
}

// Allows reports whether an endpoint may be at an address. That of a name is not known yet.
func (r *Rules) Allows(addr registry.Addr) bool {
	return len(r.Allowed) == 0 || addr.Host != "" || registry.Within(r.Allowed, addr.IP.Addr())
}

// An outage is what a log line about the health of an endpoint is about: where it fails, or answers again.
type outage struct {
	endpoint *Endpoint
	protocol registry.Protocol
	over     bool
}

// A Rotation gives out the endpoints of one port of one service in turn. The rotation is stable;
// the set of endpoints inside it is replaced. Any goroutine may call its methods.
type Rotation struct {
	Key    registry.PortKey
	mu     sync.Mutex                  // held where a set makes way for another one
	set    atomic.Pointer[endpointSet] // never nil
	checks *[2]check                   // by Protocol; nil: none are checked, as in most rotations; guarded by mu

	terms atomic.Pointer[registry.Terms] // what the service says of its endpoints, or last said; never nil; written under mu

	Holders int32         // how many claims hold it; the balancer's alone
	offered atomic.Uint32 // the [health.Clients] of the ports that have the endpoints; written under mu

	rules   *Rules
	clients [2]affinity.Clients // those that it remembers, by Protocol
}

// New returns the rotation of a port, without endpoints.
func New(rules *Rules, key registry.PortKey) *Rotation {
	r := &Rotation{Key: key, rules: rules}
	r.set.Store(&noEndpoints)
	r.terms.Store(registry.NoTerms)
	return r
}

// IsEmpty reports whether there is no endpoint to choose.
func (r *Rotation) IsEmpty() bool { return r.set.Load().len() == 0 }

// TurnsAway reports whether new clients of a service with these terms are given no endpoint, by the records of both, by checks, or because
// no endpoint has a place left, and why.
func (r *Rotation) TurnsAway(protocol registry.Protocol, terms *registry.Terms) (why traffic.Reason, is bool) {
	switch set := r.set.Load(); {
	case set.len() == 0:
		return traffic.NoEndpoints, true
	case set.isDrained():
		return traffic.ZeroWeight, true
	case terms.Local && r.rules.Node.Name != "" && r.awake().seenBy(forLocal).allowed == 0:
		return traffic.NoLocalEndpoint, true
	case terms.Failure.Refuse && r.awake().seenBy(kindOf(netip.Addr{}, terms)).allFail(protocol):
		return traffic.AllFailed, true
	case terms.Limits.PerEndpoint > 0 && r.awake().seenBy(kindOf(netip.Addr{}, terms)).isFull(protocol):
		return traffic.EndpointLimit, true
	}
	return 0, false
}

// WhyNone returns why a client of a service with these terms was offered no endpoint.
func (r *Rotation) WhyNone(protocol registry.Protocol, terms *registry.Terms) traffic.Reason {
	switch why, away := r.TurnsAway(protocol, terms); {
	case away:
		return why
	case terms.Limits.PerEndpoint > 0: // a place is free since then
		return traffic.EndpointLimit
	}
	return traffic.NoEndpoints
}

// Forget has the rotation remember no client any more: it is not used again.
func (r *Rotation) Forget() {
	for protocol := range r.clients {
		r.rules.affinities.ForgetAll(&r.clients[protocol])
	}
}

// changed tells clients that wait, and calls the hook of the balancer.
func (r *Rotation) changed() {
	r.TellNews()
	r.callHook()
}

// News returns a context that ends with the next change of the endpoints, of their health or of places at them, and when the service leaves
// its port: see [news.Room.Of].
func (r *Rotation) News() context.Context { return r.rules.news.Of(r) }

// TellNews has clients that wait for an endpoint look again.
func (r *Rotation) TellNews() { r.rules.news.Tell(r) }

func (r *Rotation) callHook() {
	if r.rules.Changed != nil {
		r.rules.Changed(r)
	}
}

// A check is how the endpoints of a rotation are checked over one protocol.
type check struct {
	key checks.Key // of all targets, but for the address
	on  bool
}

// An endpointSet is a rotation's endpoints together with the cursor that walks them, as one value, so that the two never disagree
// (D32). The list never changes; a change of endpoints makes a new set.
//
// A set sleeps until its first client comes: so long it is only the addresses, as the record lists them. Of ten thousand
// services a node may see clients of a few, and a change of the others leaves little behind for the garbage collector.
type endpointSet struct {
	endpoints []*Endpoint
	drained   int                   // of them or of addrs, those of weight 0
	addrs     registry.Addrs        // what endpoints are made of when the set wakes up; none once they are made
	start     uint64                // whose turn it is then
	places    registry.Places       // of the record
	weights   registry.Weights      // of the record
	overrides map[registry.Addr]int // weights that operators want in place of those; nil in most sets, and in those that sleep; never edited

	views     [kinds]*view // those that differ from the ones before; nil while the set sleeps, and of a set without endpoints
	tellApart kind         // in what kinds of clients differ that have different views
	nearness  []uint8      // the distances of the endpoints from the node; nil if all are alike
	prepared  int          // its endpoints, if it is large and ready for its first client; guarded by mu of the rotation
	zones     *zones       // of all sets of the rotation; nil until it is known of an endpoint where it is
}

// Zones are what is known of the clients of a rotation and where their endpoints are.
type zones struct {
	given [2]atomic.Uint64 // clients that were given an endpoint in the zone of the node, and in another
	reach [2]atomic.Uint32 // by Protocol: a [reach], as of the last log line
}

// noEndpoints is the set of every rotation that has had no endpoints yet. It is empty, so nothing is written to it.
var noEndpoints endpointSet

func (s *endpointSet) isAsleep() bool { return s.addrs.Len() > 0 }

// len counts the endpoints, also of a set that sleeps.
func (s *endpointSet) len() int { return len(s.endpoints) + s.addrs.Len() }

// isDrained reports whether there are endpoints, and all have weight 0.
func (s *endpointSet) isDrained() bool { return s.drained > 0 && s.drained == s.len() }

// An Endpoint is one address in one rotation. Later sets of the rotation keep it, and with it what is known of it.
type Endpoint struct {
	Addr      registry.Addr
	Rotation  *Rotation
	forbidden bool                  // its address is not allowed
	weight    atomic.Int32          // in the newest set that it is in; 0: no new client
	where     atomic.Uint32         // its [registry.Place], in the newest set that it is in
	at        [kinds]atomic.Int32   // its position in its tier of each view of the newest set that it is in; -1: it is in none
	known     atomic.Pointer[stats] // nil until there are any
}

// The stats of an endpoint are all that happens to it.
type stats struct {
	health   [2]health.Health                 // by Protocol: an endpoint that refuses datagrams may accept connections
	gone     atomic.Bool                      // no longer in the rotation: a UDP session looks at it on each datagram
	lifetime atomic.Pointer[removal.Lifetime] // that TCP connections begin under; nil until one does

	taken       atomic.Int64  // places: dials under way, and the connections and sessions that the endpoint has not ended
	dialing     atomic.Int64  // of them, dials
	finished    atomic.Int64  // connections that the endpoint has ended, and the client has not
	full        atomic.Bool   // rosters may leave it out because it has no place left: see Endpoint.freed
	connections atomic.Uint64 // and since it came
	failures    atomic.Uint64 // attempts that did not reach it

	turns [2]atomic.Uint32 // of the addresses of its name, by Protocol

	checks [2]atomic.Pointer[checks.Target] // by Protocol: nil where it is not checked; written under the rotation's mu
}
