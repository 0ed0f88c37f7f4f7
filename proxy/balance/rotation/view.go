package rotation

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"kubeproxy/registry"
)

// A kind of client is what decides which endpoints it is given first, beside where the node is. It is a sum of the following.
type kind uint8

const (
	overIPv6 kind = 1 << iota // it comes over IPv6
	forLocal                  // its service gives it endpoints on the node only

	kinds
)

// kindOf returns the kind of a client of a service with these terms.
func kindOf(client netip.Addr, terms *registry.Terms) (k kind) {
	if client.Is6() && !client.Is4In6() {
		k |= overIPv6
	}
	if terms.Local {
		k |= forLocal
	}
	return k
}

// A view is a set as clients of some kinds see it: endpoints in tiers, in the order in which clients are given them. A client of a service with
// endpoints of both families is given those of its own family first: today's kube-proxy keeps the families apart, and an endpoint may well look at the
// address that it is connected to. Of one family the nearest come first. Endpoints that stand by come after all others.
type view struct {
	tiers   []*tier
	allowed int // endpoints that new clients can be given: by their addresses and their weights
}

// seenBy returns the view of clients of a kind. The set must not sleep.
func (s *endpointSet) seenBy(k kind) *view {
	if v := s.views[k&s.tellApart]; v != nil {
		return v
	}
	return new(view) // of a set without endpoints
}

// divide makes the views of the set, in which nearness has the distances of the endpoints, weights their weights, and either is nil if all are alike.
func (s *endpointSet) divide(nearness []uint8, weights []int, knowsNode bool) {
	var families [2]bool
	for _, e := range s.endpoints {
		families[familyOf(e.Addr)] = families[familyOf(e.Addr)] || e.Addr.Host == ""
	}
	if families[0] && families[1] {
		s.tellApart |= overIPv6
	}
	if knowsNode {
		s.tellApart |= forLocal
	}
	s.nearness = nearness
	for k := range kinds {
		if k&^s.tellApart == 0 {
			s.views[k] = s.view(k, weights)
		}
	}
}

// familyOf returns 0 for an address of IPv4, and 1 for one of IPv6.
func familyOf(a registry.Addr) int {
	if a.IP.Addr().Unmap().Is4() {
		return 0
	}
	return 1
}

// view makes the view of one kind of clients. Each of its tiers has endpoints, so one of no endpoints has no tier.
func (s *endpointSet) view(k kind, weights []int) *view {
	v := new(view)
	if len(s.endpoints) > 0 && s.nearness == nil && k == 0 && s.tellApart&overIPv6 == 0 { // as most are
		t := &tier{endpoints: s.endpoints, kind: k}
		t.setWeights(weights)
		for i, e := range s.endpoints {
			e.at[k].Store(int32(i))
		}
		v.tiers = []*tier{t}
	} else {
		v.tiers = s.partition(k, weights)
	}
	for _, t := range v.tiers {
		for _, e := range t.endpoints {
			if !e.isExcluded() {
				v.allowed++
			}
		}
	}
	return v
}

// partition makes the tiers of one kind of clients.
func (s *endpointSet) partition(k kind, weights []int) (tiers []*tier) {
	type member struct{ backup, family, distance, position int }
	members := make([]member, 0, len(s.endpoints))
	for i, e := range s.endpoints {
		m := member{position: i}
		if s.nearness != nil {
			m.distance = int(s.nearness[i])
		}
		if e.Addr.Host == "" && familyOf(e.Addr) != int(k&overIPv6) && s.tellApart&overIPv6 != 0 {
			m.family = 1
		}
		if e.isBackup() {
			m.backup = 1
		}
		e.at[k].Store(-1)
		if k&forLocal == 0 || e.place()&registry.OnNode != 0 {
			members = append(members, m)
		}
	}
	compare := func(a, b member) int {
		return cmp.Or(cmp.Compare(a.backup, b.backup), cmp.Compare(a.family, b.family), cmp.Compare(a.distance, b.distance))
	}
	slices.SortStableFunc(members, compare)
	for len(members) > 0 {
		n := 1
		for n < len(members) && compare(members[n], members[0]) == 0 {
			n++
		}
		t := &tier{kind: k, distance: uint8(members[0].distance), backup: members[0].backup != 0}
		var of []int
		for at, m := range members[:n] {
			e := s.endpoints[m.position]
			e.at[k].Store(int32(at))
			if t.endpoints = append(t.endpoints, e); weights != nil {
				of = append(of, weights[m.position])
			}
		}
		t.setWeights(of)
		tiers, members = append(tiers, t), members[n:]
	}
	return tiers
}

// everyTier yields the tiers of all views.
func (s *endpointSet) everyTier() iter.Seq[*tier] {
	return func(yield func(*tier) bool) {
		for _, v := range s.views {
			if v == nil {
				continue
			}
			for _, t := range v.tiers {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// inTurn yields the endpoints of the view in the order in which clients are given them.
func (v *view) inTurn() iter.Seq[*Endpoint] {
	return func(yield func(*Endpoint) bool) {
		for _, t := range v.tiers {
			from := t.turn(t.cursor.Load())
			for i := range t.endpoints {
				if !yield(t.endpoints[(from+i)%len(t.endpoints)]) {
					return
				}
			}
		}
	}
}

// begin has each tier go on with the first of its endpoints in an order; without one it stays where it is, and with shares, too.
func (s *endpointSet) begin(order func(kind) iter.Seq[*Endpoint]) {
	for k, v := range s.views {
		if v == nil {
			continue
		}
		left := slices.Clone(v.tiers)
		for e := range order(kind(k)) {
			at := -1
			if i := slices.IndexFunc(left, func(t *tier) bool { at = t.position(e); return at >= 0 }); i >= 0 {
				if left[i].shares == nil {
					left[i].cursor.Store(uint64(at))
				}
				left[i].walk.Store(uint64(at))
				left = slices.Delete(left, i, i+1)
			}
			if len(left) == 0 {
				break
			}
		}
	}
}

// hasReady reports whether an endpoint in view is ready.
func (v *view) hasReady(protocol registry.Protocol) bool {
	return slices.ContainsFunc(v.tiers, func(t *tier) bool { return t.hasReady(protocol) })
}

// allFail reports whether the view has endpoints, and the checks of all fail.
func (v *view) allFail(protocol registry.Protocol) bool {
	return v.allowed > 0 && !slices.ContainsFunc(v.tiers, func(t *tier) bool { return !t.allFail(protocol) })
}

// isFull reports whether no endpoint in view is ready, and one is only full.
func (v *view) isFull(protocol registry.Protocol) bool {
	return !v.hasReady(protocol) && slices.ContainsFunc(v.tiers, func(t *tier) bool { return t.roster(protocol).leavesOut() })
}

// reach says how far clients are sent: to the first tier with an endpoint that is ready, or if none is, to the last.
func (v *view) reach(protocol registry.Protocol) (how reach) {
	for _, t := range v.tiers {
		switch {
		case t.backup && t.distance > 0: // else all are
			how = backups
		case t.distance > 0:
			how = max(how, farther)
		}
		if t.hasReady(protocol) {
			break
		}
	}
	return how
}

// another returns a ready endpoint that the client was not offered, in place of the one that the algorithm gives it: of its tier, or of the next. With
// SourceAddress it is the next on the ring. Otherwise, and when that search is too long, it is what nextReady finds. When all are ejected
// it is the one that returns first, unless others are only full. nil: the client was offered all, or is to wait.
func (v *view) another(c *Choice) *Endpoint {
	c.full = false
	for i, t := range v.tiers {
		if i > 0 {
			if e := t.draw(c.balance, c.protocol, c.client); !c.offered.has(e) && !e.skips(c.protocol, false) {
				return e
			}
		}
		if c.balance == registry.SourceAddress {
			if e := t.along(c.protocol, c.client, &c.offered); e != nil {
				return e
			}
		}
		ready, warming, full := t.nextReady(c)
		c.full = c.full || full
		if e := cmp.Or(ready, warming); e != nil {
			return e // also one that warms up: those of the next tier are for when none of this one is ready
		}
	}
	if c.full || c.again {
		return nil // and not one that fails; if a place is free by now, or one is well, that is news
	}
	for _, t := range v.tiers {
		if e := t.soonest(c.protocol, &c.offered); e != nil && !(c.refuses && e.failsCheck(c.protocol)) {
			return e
		}
	}
	if c.offered.n == 0 && len(v.tiers) > 0 {
		t := v.tiers[0]
		if e := t.endpoints[t.turn(t.cursor.Load())]; e.forbidden {
			return e // as all are: one of them says why the client is refused
		}
	}
	return nil
}
