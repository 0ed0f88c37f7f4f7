package proxy

import (
	"iter"

	"github.com/golang/glog"

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

// A refusedPort is one that services ask for in vain.
type refusedPort struct {
	err    error // why; it depends on the port and on the configuration alone
	claims claims
}

// refuseLocked notes a claim on a port that its service may not have, and logs it.
func (p *Proxier) refuseLocked(id registry.NodePort, c *engine.Claim) {
	r := p.refused[id]
	if r == nil {
		r = &refusedPort{err: p.cfg.refusal(c.Key.Name, id)}
		p.refused[id] = r
	}
	r.claims.add(c)
	if note, ok := p.forbidden.Allow(aboutPort{id, c.Key, false}); ok {
		glog.Errorf("%s cannot have %s: %v%s", c.Key, id, r.err, note)
	}
}

// renewRefusedLocked reports whether a service asked for a port in vain. If the service still does, the claim moves from refused to the
// place of the one before; else the claim before is forgotten.
func (p *Proxier) renewRefusedLocked(id registry.NodePort, name registry.Name, refused map[registry.NodePort]*engine.Claim) bool {
	r := p.refused[id]
	if r == nil {
		return false
	}
	had := r.claims.find(name)
	if had == nil {
		return false
	}
	if c := refused[id]; c != nil {
		r.claims.replace(had, c)
		delete(refused, id)
	} else if r.claims.remove(had); r.claims.n == 0 {
		delete(p.refused, id)
	}
	return true
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
