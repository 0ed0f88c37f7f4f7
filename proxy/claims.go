package proxy

import (
	"iter"

	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// Claims are the claims on one port, in order: the first owns the port, the others wait. A service claims a port at most once. Each
// method takes constant time, however many services claim the port. The zero value is empty.
type claims struct {
	first, last *engine.Claim
	n           int
	byName      map[registry.Name]*engine.Claim // nil while there are few
}

// fewClaims is how many claims are sooner looked through than looked up. Most ports have one.
const fewClaims = 8

// find returns the claim of a service, nil if it has none.
func (cs *claims) find(name registry.Name) *engine.Claim {
	if cs.byName != nil {
		return cs.byName[name]
	}
	for c := range cs.all() {
		if c.Key.Name == name {
			return c
		}
	}
	return nil
}

// add appends a claim.
func (cs *claims) add(c *engine.Claim) {
	c.Before, c.After = cs.last, nil
	if cs.last == nil {
		cs.first = c
	} else {
		cs.last.After = c
	}
	cs.last = c
	cs.n++
	switch {
	case cs.byName != nil:
		cs.byName[c.Key.Name] = c
	case cs.n > fewClaims:
		cs.byName = make(map[registry.Name]*engine.Claim)
		for c := range cs.all() {
			cs.byName[c.Key.Name] = c
		}
	}
}

// replace puts a claim of the same service in the place of one.
func (cs *claims) replace(old, c *engine.Claim) {
	c.Before, c.After = old.Before, old.After
	cs.link(c.Before, c)
	cs.link(c, c.After)
	if cs.byName != nil {
		cs.byName[c.Key.Name] = c
	}
}

// remove takes a claim out.
func (cs *claims) remove(c *engine.Claim) {
	cs.link(c.Before, c.After)
	cs.n--
	if cs.byName != nil {
		delete(cs.byName, c.Key.Name)
	}
	if cs.n == 0 {
		cs.byName = nil
	}
}

// link makes two claims neighbours; nil stands for either end.
func (cs *claims) link(before, after *engine.Claim) {
	if before == nil {
		cs.first = after
	} else {
		before.After = after
	}
	if after == nil {
		cs.last = before
	} else {
		after.Before = before
	}
}

// all yields the claims in order.
func (cs *claims) all() iter.Seq[*engine.Claim] {
	return func(yield func(*engine.Claim) bool) {
		for c := cs.first; c != nil && yield(c); c = c.After {
		}
	}
}

// byListener gives claims of one service by what they claim; nil if there are none.
func byListener(list []*engine.Claim) map[registry.ListenerID]*engine.Claim {
	if len(list) == 0 {
		return nil
	}
	claims := make(map[registry.ListenerID]*engine.Claim, len(list))
	for _, c := range list {
		claims[c.ID] = c
	}
	return claims
}

// compareClaims orders the new claims of one batch, and so all claims after a restart: the claim that is known for longest comes
// first, then namespace and name decide (D30). Claims of an earlier source come before those of a later one.
func compareClaims(a, b *engine.Claim) int {
	return registry.Precedence{Rank: a.Rank, Since: a.Since, Name: a.Key.Name}.Compare(
		registry.Precedence{Rank: b.Rank, Since: b.Since, Name: b.Key.Name})
}
