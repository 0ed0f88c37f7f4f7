package checks

import (
	"container/heap"

	"kubeproxy/registry"
)

// maxUnderWay bounds the checks under way, and so their descriptors. Services share these places.
const maxUnderWay = 512

// Shares divide the places for checks among the services whose targets are due. The service with the fewest checks under way has
// the next place, and of several the one that has waited for longest. It has to leave as many places free as it would then hold: n
// services whose endpoints hang hold 1/(n+1) of the places each, and the rest stays for those that come later. Only when more services
// hang than there are places do others wait, for a timeout at most in each round.
//
// Each method costs the logarithm of the number of targets, and [shares.add] also the number of the target's watchers.
type shares struct {
	free  int
	clock uint64 // counts what a turn is compared by
	of    map[registry.Name]*share
	order shareOrder // of those with a target that waits
}

// A share is the checks of one service. It exists while there are any.
type share struct {
	service  registry.Name
	waiting  queue // targets that are due, by when they became so
	underWay int
	turn     uint64 // when it was last given a place, or came
	index    int    // in the order; -1: nothing waits
}

// add has a target wait for a place. Of several services that have the target, it counts for the one with the fewest checks.
func (s *shares) add(t *Target) {
	var best *share
	for w := range t.watchers {
		name := w.Service()
		one := s.of[name]
		if one == nil {
			s.clock++
			one = &share{service: name, turn: s.clock, index: -1}
			best = one
			break
		}
		if best == nil || one.size() < best.size() {
			best = one
		}
	}
	s.of[best.service], t.share = best, best
	heap.Push(&best.waiting, &t.due)
	s.settle(best)
}

// size counts the checks of the service, those that wait included.
func (s *share) size() int { return s.underWay + len(s.waiting) }

// next gives a place to the target whose turn it is; nil if none waits or no service may have another place.
func (s *shares) next() *Target {
	if len(s.order) == 0 || s.order[0].underWay >= s.free {
		return nil
	}
	first := s.order[0]
	t := heap.Pop(&first.waiting).(*entry).of
	s.clock++
	first.turn = s.clock
	first.underWay++
	s.free--
	s.settle(first)
	return t
}

// leave takes the place of a target whose check has ended.
func (s *shares) leave(t *Target) {
	of := t.share
	t.share = nil
	of.underWay--
	s.free++
	s.settle(of)
}

// remove takes a target that waits out of the line.
func (s *shares) remove(t *Target) {
	of := t.share
	t.share = nil
	heap.Remove(&of.waiting, t.due.index)
	s.settle(of)
}

// settle puts a share that has changed where it belongs.
func (s *shares) settle(of *share) {
	switch {
	case len(of.waiting) > 0 && of.index >= 0:
		heap.Fix(&s.order, of.index)
	case len(of.waiting) > 0:
		heap.Push(&s.order, of)
	case of.index >= 0:
		heap.Remove(&s.order, of.index)
	}
	if of.size() == 0 {
		delete(s.of, of.service)
	}
}

// A shareOrder is shares by whose turn it is: a heap, as package container/heap wants it.
type shareOrder []*share

// Len counts the shares.
func (o shareOrder) Len() int { return len(o) }

// Less compares two by how many checks they have under way, then by when they had their last turn.
func (o shareOrder) Less(i, j int) bool {
	if a, b := o[i], o[j]; a.underWay != b.underWay {
		return a.underWay < b.underWay
	}
	return o[i].turn < o[j].turn
}

// Swap exchanges two.
func (o shareOrder) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].index, o[j].index = i, j
}

// Push adds a share at the end.
func (o *shareOrder) Push(x any) {
	of := x.(*share)
	of.index = len(*o)
	*o = append(*o, of)
}

// Pop takes the last share.
func (o *shareOrder) Pop() any {
	old := *o
	of := old[len(old)-1]
	old[len(old)-1] = nil
	*o, of.index = old[:len(old)-1], -1
	return of
}
