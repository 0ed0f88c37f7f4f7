package rotation

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"kubeproxy/proxy/balance/affinity"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/positions"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Choice offers one client the endpoints of a rotation, at most MaxOffers of them and each at most once: the next one
// if the one before did not answer. When the endpoints change meanwhile it goes on with the new ones. It offers
// none any more when the service has left its port.
//
// An offer costs the same however many endpoints there are, and however many of them are ejected. An
// ejected one is offered only when all that are ready were: then the one that returns first.
type Choice struct {
	rotation *Rotation
	set      *endpointSet
	view     *view                       // of the set
	kind     kind                        // of the client
	protocol registry.Protocol           // whose health counts
	balance  registry.Balance            // the algorithm; unsaid: round robin
	refuses  bool                        // to be given an endpoint whose checks fail, though it be the last
	client   uint64                      // the hash of the client's address, if the algorithm is SourceAddress, or its service wants affinity
	Lifetime *removal.Lifetime           // of the service on its port; nil when it does not matter
	Connect  time.Duration               // for an endpoint to accept, as the record of the service says; 0: it does not
	Wait     time.Duration               // for an endpoint, when there is none, as the record of the service says
	sticky   *affinity.Client[*Endpoint] // the client, if its service wants affinity
	drawn    *Endpoint                   // the draw that choose made for a client without affinity, until it is used
	offered  offers
	full     bool // it was offered none in the end, since those that are well and left have no place
	elected  bool // a key elects the endpoints: one that refuses is about to be another's, or to be well again
	again    bool // it waits, and is offered those that are well
}

// ChooseFor begins the choice of an endpoint for a client, on the terms of its service, until the service leaves its port: a snapshot and an atomic add.
func (r *Rotation) ChooseFor(protocol registry.Protocol, client netip.Addr, terms *registry.Terms, of *removal.Lifetime) (c Choice) {
	c.begin(r, protocol, client, terms, of)
	if c.sticky == nil { // else it is a matter of what is remembered
		c.drawn = c.draw()
	}
	return c
}

// begin makes c the choice of a client which has been offered nothing. A Choice is large, so it is made in place.
func (c *Choice) begin(r *Rotation, protocol registry.Protocol, client netip.Addr, terms *registry.Terms, of *removal.Lifetime) {
	c.rotation, c.kind, c.protocol, c.Lifetime = r, kindOf(client, terms), protocol, of
	c.look(r.awake())
	c.refuses, c.elected = terms.Failure.Refuse, terms.HolderKey != ""
	c.balance, c.Connect, c.Wait = r.rules.Algorithm(terms.Balance), terms.Timeouts.Connect, terms.Timeouts.Wait
	if c.balance == registry.SourceAddress || terms.AffinityTimeout > 0 {
		c.client = positions.ClientHash(client)
	}
	if terms.AffinityTimeout > 0 {
		c.sticky = r.rules.affinities.Client(&r.clients[protocol], client, terms.AffinityTimeout)
	}
}

// ChooseAfter is the choice of a client that was offered e, and reached it. It does not move the cursor.
func (r *Rotation) ChooseAfter(e *Endpoint, protocol registry.Protocol, client netip.Addr, terms *registry.Terms, of *removal.Lifetime) (c Choice) {
	c.begin(r, protocol, client, terms, of)
	c.offered.last, c.offered.n = e, 1
	return c
}

// Next returns the endpoint to try now, or false when there is none: the one that the client was given
// before, if it is to have it again, or the next one in turn.
func (c *Choice) Next() (*Endpoint, bool) {
	if e := c.drawn; e != nil && !e.skips(c.protocol, false) { // most often: the first, and well
		c.drawn, c.offered.last, c.offered.n = nil, e, 1
		return e, true
	}
	// A service that leaves its port may still have a first offer: until its successor owns the port, clients come to it.
	if c.offered.n == MaxOffers || c.offered.n > 0 && c.Lifetime.IsOver() {
		return nil, false
	}
	if set := c.rotation.awake(); set != c.set {
		c.look(set)
		c.drawn = nil
	}
	if c.sticky != nil {
		return c.sticky.Endpoint(c.takeAgain, c.nextInTurn)
	}
	return c.nextInTurn()
}

// takeAgain offers the endpoint that the client was given before, unless it left or is ejected, or one of a tier before its own is ready. Who asks
// again was not served by it.
func (c *Choice) takeAgain(e *Endpoint) bool {
	i := slices.IndexFunc(c.view.tiers, func(t *tier) bool { return t.position(e) >= 0 || t.hasReady(c.protocol) })
	if i < 0 || c.view.tiers[i].position(e) < 0 || e.Gone() || c.offered.has(e) || e.skips(c.protocol, true) {
		return false
	}
	c.offered.add(e)
	return true
}

// nextInTurn offers the next endpoint in turn. One that is ejected is skipped while there is another.
func (c *Choice) nextInTurn() (*Endpoint, bool) {
	e := c.drawn
	c.drawn = nil
	if e == nil {
		if e = c.draw(); e == nil {
			return nil, false
		}
	}
	if c.offered.has(e) || e.skips(c.protocol, false) {
		if e = c.view.another(c); e == nil {
			return nil, false
		}
	}
	c.offered.add(e)
	return e, true
}

// look has the client choose from a set.
func (c *Choice) look(set *endpointSet) { c.set, c.view = set, set.seenBy(c.kind) }

// draw returns the endpoint that the algorithm gives to the client, of the nearest, whether it is ready or not; nil if there is none.
func (c *Choice) draw() *Endpoint {
	if len(c.view.tiers) == 0 {
		return nil
	}
	return c.view.tiers[0].draw(c.balance, c.protocol, c.client)
}

// Leaves reports whether the client of an endpoint is to move to another one: its checks fail, and another one is ready. It
// takes a lock only while the checks fail.
func (c *Choice) Leaves(e *Endpoint) bool {
	return e.failsCheck(c.protocol) && e.Rotation.awake().seenBy(c.kind).hasReady(c.protocol)
}

// News returns a context that ends when there may be an endpoint for a client that was offered none: see [Rotation.News]. No news tells that an
// ejection is over: see Returns.
func (c *Choice) News() context.Context { return c.rotation.News() }

// Returns returns when the ejection of an endpoint is over that a client may be offered then; [health.Never] or later: of none.
func (c *Choice) Returns() time.Duration {
	at := health.Never
	for _, t := range c.view.tiers {
		r := t.roster(c.protocol)
		r.mu.Lock()
		if due, ejected := r.index.First(); ejected && c.offered.n < MaxOffers { // it may have passed since the client has looked
			at = min(at, due)
		}
		r.mu.Unlock()
	}
	return at
}

// Offers counts the endpoints that the client was offered.
func (c *Choice) Offers() int { return c.offered.n }

// IsLast reports whether no other endpoint is offered after the last one.
func (c *Choice) IsLast() bool { return c.offered.n >= min(c.view.allowed, MaxOffers) }

// Reached notes that the client has begun at an endpoint that it was offered.
func (c *Choice) Reached(e *Endpoint) {
	if h := e.healthOf(c.protocol); h != nil {
		h.Usable()
	}
	if c.sticky != nil {
		c.sticky.Reached(e)
	}
}

// Failed notes that an endpoint that was offered refused this client, or stayed silent.
func (c *Choice) Failed(e *Endpoint) {
	e.Failed(c.protocol)
	c.leave(e)
}

// Unusable notes that an endpoint that was offered cannot be used for now, through no fault of its own: its name was not resolved, or its address
// is refused by our own rules, as the reason says. It is ejected for a fixed time, and its health stays as it was.
func (c *Choice) Unusable(e *Endpoint, why traffic.Reason) {
	e.setAside(c.protocol, why)
	c.leave(e)
}

// Withdraw takes back the offer of e, the last one: others were faster to take its last place.
func (c *Choice) Withdraw(e *Endpoint) {
	c.offered.withdraw()
	c.leave(e)
}

// MayWait reports whether a client that is offered none, or no further one, may be offered one that was not there, or had no place.
func (c *Choice) MayWait() bool { return c.Offers() == 0 || c.full || c.elected }

// LookAgain has a client that waits be offered an endpoint again, once it is well, that has refused it, if a key elects the endpoints, or that had
// too many dials.
func (c *Choice) LookAgain(limited bool) {
	if c.elected || limited {
		c.offered, c.again = offers{}, true
	}
}

// WaitTime is how long a client that is offered no endpoint waits for one: as its service says, and at least atLimit while endpoints are full. A
// client that closes a connection and opens the next one at once comes before the proxy has read the end of the first.
func (c *Choice) WaitTime(atLimit time.Duration) time.Duration {
	if c.full {
		return max(c.Wait, atLimit)
	}
	return c.Wait
}

// leave makes the client's next choice another than e.
func (c *Choice) leave(e *Endpoint) {
	if c.sticky != nil {
		c.sticky.Forget(e)
	}
}
