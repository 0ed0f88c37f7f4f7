package positions

import (
	"container/heap"
	"math/bits"
	"time"
)

// Readiness knows of each position whether it is ready, or ejected, and until when. One goroutine at a time may use it.
type Readiness struct {
	ready   bitmap
	ejected ejections
	passed  []ejection // space for Soonest
}

// NewReadiness returns an index of n positions, each of which is in neither part.
func NewReadiness(n int) *Readiness {
	return &Readiness{ready: newBitmap(n), ejected: ejections{where: make([]int32, n)}}
}

// Set puts a position where it belongs: it returns at due, by the clock of the caller, or is ready when that is 0.
func (x *Readiness) Set(at int, due time.Duration) {
	i := int(x.ejected.where[at]) - 1
	switch {
	case due == 0:
		if i >= 0 {
			heap.Remove(&x.ejected, i)
		}
		x.ready.add(at)
	case i >= 0:
		x.ejected.heap[i].due = due
		heap.Fix(&x.ejected, i)
	default:
		x.ready.remove(at)
		heap.Push(&x.ejected, ejection{at, due})
	}
}

// Clear puts a position in neither part.
func (x *Readiness) Clear(at int) {
	if i := int(x.ejected.where[at]) - 1; i >= 0 {
		heap.Remove(&x.ejected, i)
	}
	x.ready.remove(at)
}

// maxReadmitted is how many positions one call of Readmit makes ready again: the bound is for the worst case.
const maxReadmitted = 64

// Readmit makes positions ready whose time to return has come.
func (x *Readiness) Readmit(now time.Duration) {
	for range maxReadmitted {
		if x.ejected.Len() == 0 || x.ejected.heap[0].due > now {
			return
		}
		x.ready.add(heap.Pop(&x.ejected).(ejection).at)
	}
}

// Next returns the first position from at on that is ready, or else the first of all; -1 when none is.
func (x *Readiness) Next(at int) int {
	if next := x.ready.next(at); next >= 0 {
		return next
	}
	return x.ready.next(0)
}

// First returns when the first ejected position returns; false: none is ejected.
func (x *Readiness) First() (due time.Duration, ok bool) {
	if x.ejected.Len() == 0 {
		return 0, false
	}
	return x.ejected.heap[0].due, true
}

// Soonest returns the ejected position that returns first of those that skip does not refuse; -1 when there is none among
// the first most.
func (x *Readiness) Soonest(most int, skip func(at int) bool) int {
	at := -1
	x.passed = x.passed[:0]
	for x.ejected.Len() > 0 && len(x.passed) < most {
		if first := x.ejected.heap[0].at; !skip(first) {
			at = first
			break
		}
		x.passed = append(x.passed, heap.Pop(&x.ejected).(ejection))
	}
	for _, e := range x.passed {
		heap.Push(&x.ejected, e)
	}
	return at
}

// An ejection is the position of an endpoint that is ejected, and when it returns.
type ejection struct {
	at  int
	due time.Duration
}

// Ejections are a heap, the one that is due first on top.
type ejections struct {
	heap  []ejection
	where []int32 // by position: the index in heap, plus 1; 0 for one that is not ejected
}

// Len counts the ejections. With Less, Swap, Push and Pop it is what container/heap asks for.
func (x *ejections) Len() int { return len(x.heap) }

// Less compares two by their times.
func (x *ejections) Less(i, j int) bool { return x.heap[i].due < x.heap[j].due }

// Swap exchanges two, and what is known of where they are.
func (x *ejections) Swap(i, j int) {
	x.heap[i], x.heap[j] = x.heap[j], x.heap[i]
	x.where[x.heap[i].at], x.where[x.heap[j].at] = int32(i+1), int32(j+1)
}

// Push adds an ejection at the end.
func (x *ejections) Push(v any) {
	x.heap = append(x.heap, v.(ejection))
	x.where[v.(ejection).at] = int32(len(x.heap))
}

// Pop takes the last ejection.
func (x *ejections) Pop() any {
	last := x.heap[len(x.heap)-1]
	x.heap = x.heap[:len(x.heap)-1]
	x.where[last.at] = 0
	return last
}

// A bitmap is a set of small numbers: a bit for each, above them a bit for each word that is not zero, and so on, up to a single word. Three
// levels hold 262,144.
type bitmap [][]uint64

func newBitmap(n int) bitmap {
	var p bitmap
	for n > 0 {
		n = (n + 63) / 64
		p = append(p, make([]uint64, n))
		if n == 1 {
			break
		}
	}
	return p
}

func (p bitmap) add(i int) {
	for _, words := range p {
		words[i/64] |= 1 << (i % 64)
		i /= 64
	}
}

func (p bitmap) remove(i int) {
	for _, words := range p {
		if words[i/64] &^= 1 << (i % 64); words[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// next returns the first number from i on, or -1.
func (p bitmap) next(i int) int {
	for level, words := range p {
		if i/64 >= len(words) {
			return -1
		}
		if rest := words[i/64] >> (i % 64); rest != 0 {
			i += bits.TrailingZeros64(rest)
			for level--; level >= 0; level-- {
				i = i*64 + bits.TrailingZeros64(p[level][i])
			}
			return i
		}
		i = i/64 + 1
	}
	return -1
}
