package checks

import "time"

// An entry is the place of a target in a queue.
type entry struct {
	of    *Target
	at    time.Duration // by the monotonic clock
	index int           // in the queue; -1: in none
}

// A queue is entries by their times: a heap, as package container/heap wants it.
type queue []*entry

// Len counts the entries.
func (q queue) Len() int { return len(q) }

// Less compares two by their times.
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at }

// Swap exchanges two.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push adds an entry at the end.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop takes the last entry.
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q, e.index = old[:len(old)-1], -1
	return e
}
