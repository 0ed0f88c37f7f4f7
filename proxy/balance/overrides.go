package balance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"kubeproxy/registry"
)

// An Override is an operator's word about one endpoint of a service at this node, or about the node. It wins over the record, and ends by
// itself: when its time is over, or when the endpoint leaves the record.
type Override struct {
	Service registry.Name // zero: it is about the node
	Addr    registry.Addr
	Word    Word
	Weight  int       // with Weigh
	UID     int       // of the operator, or ByPage
	Began   time.Time // by the clock on the wall, for people
	Until   time.Time // monotonic in the process that made it, so a clock that is set does not move its end
	Before  *Override // which this one has taken the place of: only in what LoadBalancerRR.Override returns; nil: there was none
}

// A Word is what an operator wants.
type Word uint8

// The words.
const (
	Drain   Word = iota // the endpoint gets no new client, or the node is not ready
	Disable             // the endpoint gets no new client, and those that it has are ended
	Weigh               // the endpoint has another weight
	endOfWords
)

var words = [endOfWords]string{"drain", "disable", "weight"}

// String gives the word as operators type it.
func (w Word) String() string { return words[w] }

// ParseWord is the reverse of String.
func ParseWord(text string) (Word, error) {
	i := slices.Index(words[:], text)
	if i < 0 {
		return 0, errors.New("must be drain, disable or weight")
	}
	return Word(i), nil
}

// weight is that of the endpoint while the override lasts.
func (o *Override) weight() int {
	if o.Word == Weigh {
		return o.Weight
	}
	return 0
}

// ByPage stands for the user of an operator who used the status page (-page_actions).
const ByPage = -1

// Who names an operator by the user.
func Who(uid int) string {
	if uid == ByPage {
		return "at the status page"
	}
	return fmt.Sprintf("uid %d", uid)
}

// IsOfNode reports whether it is about the node.
func (o *Override) IsOfNode() bool { return o.Service == registry.Name{} }

// String says what it does, in words.
func (o *Override) String() string {
	switch {
	case o.IsOfNode():
		return "the node is drained"
	case o.Word == Weigh:
		return fmt.Sprintf("%s has weight %d", o.label(), o.Weight)
	case o.Word == Disable:
		return o.label() + " is disabled"
	}
	return o.label() + " is drained"
}

func (o *Override) label() string { return registry.Label(o.Addr.String()) }

// maxOverrides bounds them: an operator who needs more edits records.
const maxOverrides = 4096

// ErrLastEndpoint is that an override would leave new clients no endpoint that answers.
var ErrLastEndpoint = errors.New("no other endpoint answers, so new clients would be refused; -force does it all the same")

// ErrNoSuchEndpoint is that no endpoint of a service matches.
var ErrNoSuchEndpoint = errors.New("the service has no such endpoint")

// overrides are those in force. LoadBalancerRR guards them by its mu.
type overrides struct {
	of      map[registry.Name]map[registry.Addr]Override // the node's is that of the zero Name and Addr
	n       int
	before  []Override             // those that RestoreOverrides put in force last
	settled bool                   // each source has been read: an endpoint that no record lists has gone
	wake    chan struct{}          // capacity 1: the soonest end may be another
	ended   func(Override, string) // see Tell; may be nil
}

func newOverrides() overrides {
	return overrides{of: make(map[registry.Name]map[registry.Addr]Override), wake: make(chan struct{}, 1)}
}

func (s *overrides) set(o Override) {
	if s.of[o.Service] == nil {
		s.of[o.Service] = make(map[registry.Addr]Override)
	}
	if _, ok := s.of[o.Service][o.Addr]; !ok {
		s.n++
	}
	s.of[o.Service][o.Addr] = o
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *overrides) remove(o Override) {
	if _, ok := s.of[o.Service][o.Addr]; !ok {
		return
	}
	s.n--
	if delete(s.of[o.Service], o.Addr); len(s.of[o.Service]) == 0 {
		delete(s.of, o.Service)
	}
}

// weights are those of the endpoints of a service; nil if none is overridden.
func (s *overrides) weights(name registry.Name) map[registry.Addr]int {
	if len(s.of[name]) == 0 {
		return nil
	}
	weights := make(map[registry.Addr]int, len(s.of[name]))
	for addr, o := range s.of[name] {
		weights[addr] = o.weight()
	}
	return weights
}

// Override puts an operator's word in force for the endpoints of a service that match, or for the node, and returns it for each. Without force it
// fails if no other endpoint of a port answers.
func (lb *LoadBalancerRR) Override(match registry.AddrMatch, o Override, force bool) (done []Override, err error) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	addrs, err := lb.matchingLocked(match, &o)
	if err != nil {
		return nil, err
	}
	more := 0
	for addr := range addrs {
		if _, ok := lb.overrides.of[o.Service][addr]; !ok {
			more++
		}
	}
	if lb.overrides.n+more > maxOverrides {
		return nil, fmt.Errorf("a node has %d overrides at most", maxOverrides)
	}
	if o.weight() == 0 && !force {
		for _, r := range lb.services[o.Service] {
			if !r.HasOther(addrs) {
				return nil, fmt.Errorf("%s: %w", r.Key, ErrLastEndpoint)
			}
		}
	}
	for addr := range addrs {
		o.Addr = addr
		put := o
		if before, ok := lb.overrides.of[o.Service][addr]; ok {
			put.Before = &before
		}
		lb.overrides.set(o)
		done = append(done, put)
	}
	lb.applyOverridesLocked(o.Service)
	return done, nil
}

// matchingLocked returns the addresses of a service that match; of the node, the zero address.
func (lb *LoadBalancerRR) matchingLocked(match registry.AddrMatch, o *Override) (map[registry.Addr]bool, error) {
	if o.IsOfNode() {
		return map[registry.Addr]bool{{}: true}, nil
	}
	addrs := make(map[registry.Addr]bool)
	for _, r := range lb.services[o.Service] {
		for _, e := range r.Endpoints() {
			if match.Matches(e.Addr) {
				addrs[e.Addr] = true
			}
		}
	}
	if len(addrs) == 0 {
		return nil, ErrNoSuchEndpoint
	}
	return addrs, nil
}

// Enable ends the overrides of a service that match, or that of the node, and returns them.
func (lb *LoadBalancerRR) Enable(service registry.Name, match registry.AddrMatch) (ended []Override) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for _, o := range lb.overrides.of[service] {
		if o.IsOfNode() || match.Matches(o.Addr) {
			ended = append(ended, o)
		}
	}
	for _, o := range ended {
		lb.overrides.remove(o)
	}
	lb.applyOverridesLocked(service)
	return ended
}

// applyOverridesLocked gives the rotations of a service the weights that hold now.
func (lb *LoadBalancerRR) applyOverridesLocked(name registry.Name) {
	weights := lb.overrides.weights(name)
	for _, r := range lb.services[name] {
		r.Override(weights)
	}
}

// Overrides lists those in force, in order: that of the node first.
func (lb *LoadBalancerRR) Overrides() (all []Override) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for _, of := range lb.overrides.of {
		all = slices.AppendSeq(all, maps.Values(of))
	}
	slices.SortFunc(all, func(a, b Override) int {
		if c := a.Service.Compare(b.Service); c != 0 {
			return c
		}
		return a.Addr.Compare(b.Addr)
	})
	return all
}

// OverrideOf returns the override of an endpoint of a service, or with two zero values that of the node.
func (lb *LoadBalancerRR) OverrideOf(service registry.Name, addr registry.Addr) (o Override, ok bool) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	o, ok = lb.overrides.of[service][addr]
	return o, ok
}

// RestoreOverrides puts overrides in force that a process before had, before the first batch. A second call knows better: what the first one put in force
// ends, but not what an operator did since. See SettleOverrides for those whose endpoint is not there.
func (lb *LoadBalancerRR) RestoreOverrides(all []Override) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for _, o := range lb.overrides.before {
		if lb.overrides.of[o.Service][o.Addr] == o {
			lb.overrides.remove(o)
		}
	}
	lb.overrides.before = all[:min(len(all), maxOverrides)]
	for _, o := range lb.overrides.before {
		lb.overrides.set(o)
	}
}

// endLocked ends overrides that end by themselves.
func (lb *LoadBalancerRR) endLocked(all []Override, why string) {
	for _, o := range all {
		lb.overrides.remove(o)
		if lb.overrides.ended != nil {
			lb.overrides.ended(o, why)
		}
	}
}

// Tell has f called with each override that ends by itself, and why, under locks: it must not call back. It is called before the first batch.
func (lb *LoadBalancerRR) Tell(f func(o Override, why string)) { lb.overrides.ended = f }

// vanishLocked ends the overrides of endpoints that a record does not list any more.
func (lb *LoadBalancerRR) vanishLocked(name registry.Name, endpoints *registry.Endpoints) {
	if len(lb.overrides.of[name]) == 0 || !lb.overrides.settled {
		return
	}
	listed := make(map[registry.Addr]bool)
	for _, p := range endpoints.ByPort {
		for a := range p.Addrs.All() {
			listed[a] = true
		}
	}
	lb.endUnlistedLocked(name, listed)
}

// endUnlistedLocked ends the overrides of a service for endpoints that are not listed.
func (lb *LoadBalancerRR) endUnlistedLocked(name registry.Name, listed map[registry.Addr]bool) {
	var gone []Override
	for addr, o := range lb.overrides.of[name] {
		if !listed[addr] {
			gone = append(gone, o)
		}
	}
	lb.endLocked(gone, "the endpoint has gone")
}

// SettleOverrides has overrides end with their endpoints from now on, beginning with those whose endpoints are not there. The Proxier calls it after each
// batch that is not partial: until then, the source that lists an endpoint may be silent. All calls but the first do nothing.
func (lb *LoadBalancerRR) SettleOverrides() {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if lb.overrides.settled {
		return
	}
	lb.overrides.settled = true
	for name := range lb.overrides.of {
		if (name == registry.Name{}) {
			continue // the node does not go
		}
		listed := make(map[registry.Addr]bool)
		for _, r := range lb.services[name] {
			each, _, _ := r.EndpointStatus()
			for e := range each {
				listed[e.Addr] = true
			}
		}
		lb.endUnlistedLocked(name, listed)
	}
}

// RunOverrides ends each override when its time is over, until ctx ends.
func (lb *LoadBalancerRR) RunOverrides(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-lb.overrides.wake:
		case <-timer.C:
		}
		if next, ok := lb.expire(time.Now()); ok {
			timer.Reset(time.Until(next))
		}
	}
}

// expire ends the overrides whose time is over, and returns when the next one ends.
func (lb *LoadBalancerRR) expire(now time.Time) (next time.Time, ok bool) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for name, of := range lb.overrides.of {
		var over []Override
		for _, o := range of {
			switch {
			case !now.Before(o.Until):
				over = append(over, o)
			case !ok || o.Until.Before(next):
				next, ok = o.Until, true
			}
		}
		if len(over) > 0 {
			lb.endLocked(over, "its time is over")
			lb.applyOverridesLocked(name)
		}
	}
	return next, ok
}
