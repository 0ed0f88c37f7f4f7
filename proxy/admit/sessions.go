package admit

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/traffic"
)

// A SessionLimit bounds what UDP clients can make grow: the sessions of one port of a service, those
// of all together, and the bytes that wait for endpoints. The source of a datagram can be forged,
// so a session proves little by being there, and a client that fills the table must not evict known
// clients. So sessions are evicted in this order:
//
//   - First those never confirmed, the oldest first. A client confirms its session when it sends
//     again after it was given a reply. A flood of forged sources never does, so it only evicts
//     itself, and the one-shot clients whose answer has long been given.
//   - Then a confirmed one that has been silent for a share of the timeout: it most likely has
//     nothing more to say, and would soon end anyway.
//   - A confirmed session in use is not evicted: then the new client is refused. Known
//     clients go on being served, and a refused client may ask again when other sessions have ended.
//
// Its lock is taken when a session begins, is confirmed, and ends: never for a datagram.
type SessionLimit struct {
	WaitingBytes atomic.Int64
	Existing     atomic.Int64 // sessions, those included that have ended and whose goroutines have not

	mu  sync.Mutex // guards all, the queue of every port, and where each entry stands in them
	all evictionQueue
	of  map[*traffic.Tally]*evictionQueue // of each port of a service that has sessions, over all of its listeners
}

// MaxWaitingBytes bounds the datagrams that wait, in all sessions, for an endpoint to be found.
const MaxWaitingBytes = 4 << 20

// An evictionQueue is the sessions that one limit counts, each list in the order in which they go. Of a port, max and timeout follow the
// service: see Admit.
type evictionQueue struct {
	max         int
	timeout     time.Duration      // silence after which its sessions end; of a port
	full        traffic.DropReason // what newcomers are refused for when all deserve to stay
	unconfirmed list.List          // of *Entry, oldest first
	confirmed   list.List          // of *Entry, in the order in which they will be looked at
}

// An Entry is what the limit knows of a session, whichever engine it belongs to.
type Entry struct {
	Tally     *traffic.Tally   // of the port of a service that has it
	in        [2]*list.Element // where it is in these, and in those of all; nil when it is not counted
	lastHeard atomic.Int64     // when either side last sent, by the clock of Now
	Session   evictable
}

// Heard notes that either side of the session has sent something just now. Any goroutine may call it.
func (p *Entry) Heard() { p.lastHeard.Store(int64(monotonic.Now())) }

// HeardAgo is Heard for something that was sent so long ago.
func (p *Entry) HeardAgo(ago time.Duration) { p.lastHeard.Store(int64(monotonic.Now() - ago)) }

// SilentFor returns for how long neither side has sent anything.
func (p *Entry) SilentFor() time.Duration { return monotonic.Now() - time.Duration(p.lastHeard.Load()) }

// An evictable session has an entry. To evict it takes the entry away.
type evictable interface{ Evict() }

// NewSessionLimit makes the limit of all sockets.
func NewSessionLimit(limit int) *SessionLimit {
	return &SessionLimit{all: evictionQueue{max: limit, full: traffic.DropSessionLimit}, of: make(map[*traffic.Tally]*evictionQueue)}
}

// Admit makes room for a session if it must, and counts it, or tells which limit is full. The evicted
// one is no longer counted; the caller has to evict it. Its port may have most sessions from now on, which end after a timeout.
// A newcomer evicts one at most, so limits that are exceeded stay so until others end: see Adopt.
func (l *SessionLimit) Admit(p *Entry, most int, timeout time.Duration) (evicted *Entry, full traffic.DropReason, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queues := l.queuesLocked(p, timeout)
	queues[0].max = most
	for _, q := range queues { // room made in a port is room made in all
		if evicted == nil && q.len() >= q.max {
			if evicted = l.victimLocked(q); evicted == nil {
				l.tidyLocked(p)
				return nil, q.full, false
			}
		}
	}
	for i, q := range queues {
		p.in[i] = q.unconfirmed.PushBack(p)
	}
	if evicted != nil {
		l.removeLocked(evicted) // only now: the queue of its port may go with its last session
	}
	return evicted, 0, true
}

// Adopt counts a session of a predecessor, which has been silent for so long and ends after a timeout. It makes no room: the limits
// may be exceeded until others end.
func (l *SessionLimit) Adopt(p *Entry, timeout, silent time.Duration, confirmed bool) {
	p.HeardAgo(silent)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, q := range l.queuesLocked(p, timeout) {
		if confirmed {
			p.in[i] = q.confirmed.PushBack(p)
		} else {
			p.in[i] = q.unconfirmed.PushBack(p)
		}
	}
}

// queuesLocked returns the queues that count a session: that of its port, whose sessions end after timeout, and that of all.
func (l *SessionLimit) queuesLocked(p *Entry, timeout time.Duration) [2]*evictionQueue {
	q := l.of[p.Tally]
	if q == nil {
		q = &evictionQueue{full: traffic.DropServiceLimit}
		l.of[p.Tally] = q
	}
	q.timeout = timeout
	return [...]*evictionQueue{q, &l.all}
}

// tidyLocked forgets the queue of a port that has no session.
func (l *SessionLimit) tidyLocked(p *Entry) {
	if l.of[p.Tally].len() == 0 {
		delete(l.of, p.Tally)
	}
}

func (q *evictionQueue) len() int { return q.unconfirmed.Len() + q.confirmed.Len() }

// maxLooks bounds how many confirmed sessions are looked at for one newcomer. They are looked at in
// turn, so that each gets its look: true order of last use would cost a lock for every datagram.
const maxLooks = 16

// victimLocked returns the session to evict, or nil when all deserve to stay. One that has been silent for half of its timeout can be evicted.
func (l *SessionLimit) victimLocked(q *evictionQueue) *Entry {
	if oldest := q.unconfirmed.Front(); oldest != nil {
		return oldest.Value.(*Entry)
	}
	for range min(maxLooks, q.confirmed.Len()) {
		next := q.confirmed.Front()
		if p := next.Value.(*Entry); p.SilentFor() >= l.of[p.Tally].timeout/2 {
			return p
		}
		q.confirmed.MoveToBack(next)
	}
	return nil
}

// Confirm moves a session to those that a flood cannot push out.
func (l *SessionLimit) Confirm(p *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.in[0] == nil {
		return // it was evicted just now
	}
	for i, q := range [...]*evictionQueue{l.of[p.Tally], &l.all} {
		q.drop(p.in[i])
		p.in[i] = q.confirmed.PushBack(p)
	}
}

// Remove stops counting a session. It is safe to repeat.
func (l *SessionLimit) Remove(p *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.in[0] != nil {
		l.removeLocked(p)
	}
}

func (l *SessionLimit) removeLocked(p *Entry) {
	for i, q := range [...]*evictionQueue{l.of[p.Tally], &l.all} {
		q.drop(p.in[i])
		p.in[i] = nil
	}
	l.tidyLocked(p)
}

// drop takes an element out of the list that it is in.
func (q *evictionQueue) drop(e *list.Element) {
	q.unconfirmed.Remove(e) // Remove looks whether the element is in this list
	q.confirmed.Remove(e)
}

// LagsBehind reports whether so many sessions are just ending that no more should begin: a flood must not
// begin them faster than they end. Clients that have one are unaffected.
func (l *SessionLimit) LagsBehind() bool {
	return l.Existing.Load() >= int64(l.all.max+l.all.max/8+64)
}

// Counted tells how many sessions there are.
func (l *SessionLimit) Counted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.len()
}

// Known counts the sessions of clients that have spoken after a reply.
func (l *SessionLimit) Known() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.confirmed.Len()
}

// Reserve takes room for a datagram that is to wait, if there is any.
func (l *SessionLimit) Reserve(datagram []byte) bool {
	n := int64(len(datagram))
	if l.WaitingBytes.Add(n) <= MaxWaitingBytes {
		return true
	}
	l.WaitingBytes.Add(-n)
	return false
}

// Unreserve gives back the room of datagrams that wait no longer.
func (l *SessionLimit) Unreserve(datagrams [][]byte) {
	for _, datagram := range datagrams {
		l.WaitingBytes.Add(-int64(len(datagram)))
	}
}
