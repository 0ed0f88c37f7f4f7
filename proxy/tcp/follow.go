package tcp

import (
	"sync/atomic"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
)

// How a client that has no endpoint yet goes on when its port has another claim as its owner: another service has the port, or its own has other
// terms. A race that has given up says whether the client follows; a race whose client only waits gives up for it.

// BeginFor is Begin for a client of the port whose owner is given.
func (r *Race) BeginFor(client *Connection, owner *atomic.Pointer[engine.Claim], cfg *RaceConfig, now time.Duration) {
	r.Begin(cfg, client.Choose(), now)
	r.client, r.owner = client, owner
}

// hasNewOwner reports whether the client's port has another claim as its owner than the client has.
func (r *Race) hasNewOwner() bool { return r.owner != nil && r.owner.Load() != r.client.Claim }

// NewOwner returns the claim that the client follows when its race has given up; nil: the client is turned away. That is the present owner of the
// port, if it is not the claim that the client has. But when its service has only renewed its claim, with other terms, the client follows only
// if it would wait for an endpoint. If all that it was offered have failed, it is turned away as any other: a new search would try them again.
func (r *Race) NewOwner() *engine.Claim {
	owner, own := r.owner.Load(), r.client.Claim
	renewed := owner.Tally == own.Tally && owner.Lifetime == own.Lifetime
	if owner == own || renewed && !r.search.mayWait() {
		return nil
	}
	return owner
}

// Follow has the client follow the claim that NewOwner has returned. With a claim of another service, or of another port of it, the race begins anew.
// Else it goes on: failures stay known, an endpoint that has failed is tried again only once it is well, and the client waits until the time
// of the new terms is up, as counted from its arrival. Follow returns false if the claim does not admit the client, whose account is closed then.
func (r *Race) Follow(owner *engine.Claim, now time.Duration) bool {
	another := owner.Tally != r.client.Claim.Tally
	if !r.client.follow(owner, r.search.failed) {
		return false
	}
	choice := r.client.Choose()
	if another {
		r.Begin(r.config, choice, now)
		return true
	}
	choice.Wait += now - r.began // the race counts it from there
	choice.LookAgain(len(r.search.failed) > 0)
	r.search.choice = choice
	r.search.attempt, r.search.total = r.config.Limits.DialTimes(choice.Connect)
	r.search.beginAgain(now)
	return true
}

// follow makes c a client of the present owner of its port. If its service has only renewed its claim, c is counted already, and only
// has to be allowed still. As a client of another service it is counted as if it had only just come, and those that have failed it count for the
// service before. follow returns false if the owner does not admit c.
func (c *Connection) follow(owner *engine.Claim, failed []Failure) bool {
	if owner.Tally == c.Claim.Tally {
		if c.Claim = owner; owner.Allows(c.client.Addr()) {
			return true
		}
		c.TurnAway(traffic.SourceNotAllowed, failed)
		return false
	}
	c.tried(failed)
	c.base.Connections.Add(-1)
	c.Claim.Tally.Active.Add(-1)
	c.part()
	*c = Connection{base: c.base, Claim: owner, port: c.port, client: c.client, began: c.began, others: c.others}
	return c.admit()
}
