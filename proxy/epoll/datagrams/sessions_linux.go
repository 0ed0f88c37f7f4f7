package datagrams

import (
	"net/netip"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
)

// Sessions are all that a loop holds for UDP: its ports, the sessions of their clients, and what is read and sent for
// them in batches. A session and a port find each other by their pointers; the loop finds them by the places that events bear.
type Sessions struct {
	Engine   *engine.Base
	Turn     *reactor.Turn
	Poller   *reactor.Poller
	Requests *reactor.Requests
	Pauses   *reactor.Pauses
	Searches *reactor.Searches

	Asking    reactor.Kind // of events: a port has datagrams of clients
	Answering reactor.Kind // the endpoint of a session has sent some

	ports reactor.Slab[*port]
	all   reactor.Slab[*session]
	begun int     // ever
	read  []*port // that were read since it was last counted what the kernel had no room for

	borrowed map[uint64]*session // by what the predecessor knows them by

	in        *socket.ReceiveBatch // nil before the first datagram of a client
	out       *socket.SendBatch    // nil before the first of an endpoint
	datagrams int                  // carried in this turn

	sweepAt time.Duration // when idle ones are looked for next
	swept   int           // how many places have been looked at, of this sweep
	least   time.Duration // the shortest silence that ends one of those
}

// A port is one open UDP port of the epoll engine: the socket that all its clients speak to, and
// their sessions. What they send is read many datagrams at a time (recvmmsg(2)), and what they are
// answered is sent many at a time, at the end of the turn (sendmmsg(2)).
type port struct {
	udp.Port
	reactor.Watched
	sessions *Sessions // that it is a port of
	closed   bool
	read     bool   // since countLost, and in Sessions.read
	batch    int    // how many datagrams are read at once
	queue    packed // what is known of the kernel's queue; of this batch
	dual     bool   // it serves both families, and knows IPv4 clients by mapped addresses

	clients map[admit.SessionKey]*session // the newest of each
	live    int                           // sessions, those included whose clients have begun another

	ready <-chan struct{} // closed when the loop has begun to watch it
	err   error           // why that failed; to be read after ready
}

// A session carries the datagrams of one UDP client as [udp.Session] says, without a goroutine, and so without a lock.
// Its loop reads what its client sends (see ports_linux.go) and what its endpoint answers, and moves it to another endpoint.
type session struct {
	udp.Session
	port       *port
	index      int32
	generation uint32

	fd          int32     // connected to the endpoint; socket.None while there is none
	visit       udp.Visit // of that endpoint
	looking     bool      // its name is being looked up, or it waits for an endpoint
	stopWaiting func()    // ends the wait for an endpoint; nil: it does not wait
	deferred    bool      // the loop goes on looking for an endpoint in a later turn
	lending     uint16    // in which it was last lent to a successor, with this socket; 0: in none
	lent        uint64    // what a predecessor knows it by that goes on with it; 0: there is none
	read        uint64    // the turn in which it was last read
	counted     uint64    // the one in which it was last counted what the kernel had no room for
	eager       uint8     // how many datagrams were, at most
}

func (f *session) token() reactor.Token {
	return reactor.Token{Kind: f.port.sessions.Answering, Index: f.index, Generation: f.generation}
}

// place gives f a place, by which events find it.
func (u *Sessions) place(f *session) {
	slot, index, generation := u.all.Add()
	*slot = f
	f.index, f.generation = index, generation
	f.port.live++
	u.sweepAt = min(u.sweepAt, u.Turn.Now+sweepAfter(f.port.Silence()))
}

// evict ends a session for the sake of another one.
func (u *Sessions) evict(f *session) { u.end(f, traffic.Evicted) }

// end ends a session, unless it has ended.
func (u *Sessions) end(f *session, why traffic.Reason) {
	if !f.Ended() {
		f.End(why)
		u.finish(f)
	}
}

// finish gives back what a session has that has ended.
func (u *Sessions) finish(f *session) {
	if u.out.Owes(f) {
		u.out.Send() // they count
	}
	u.depart(f)
	u.displace(f)
	f.Finish()
	f.port.freeIfDrained()
}

// displace takes f from its place, and from its client, unless that has begun another session.
func (u *Sessions) displace(f *session) {
	if f.port.clients[f.Key] == f {
		delete(f.port.clients, f.Key)
	}
	f.port.live--
	if f.stopWaiting != nil {
		f.stopWaiting() // or its context would have a reference to the session until the wait is over
	}
	u.all.Remove(f.index)
}

// EndAll ends the sessions in a few places of the loop's, for the drain is over.
func (u *Sessions) EndAll(from int) (next int) {
	sessions, next := u.all.Some(from, reactor.PlacesAStep)
	for f := range sessions {
		u.end(*f, traffic.Shutdown)
	}
	return next
}

// depart closes the socket to the endpoint of f, if there is one.
func (u *Sessions) depart(f *session) {
	if f.fd != socket.None {
		u.countLost(f)
		f.Abandon(sockopt.Unread(int(f.fd)))
		if f.lending != 0 { // or epoll goes on reporting it for as long as the successor has it
			u.Poller.Unwatch(int(f.fd))
		}
		socket.Close(int(f.fd))
		f.fd, f.lending = socket.None, 0
		f.Departed(&f.visit, u.Turn.Now)
	}
}

// Evict has its loop end the session for the sake of another one.
func (f *session) Evict() {
	u := f.port.sessions
	u.Requests.Do(func() { u.evict(f) })
}

// datagramsATurn is how many datagrams a turn carries, about: past that each port is read fewSessions more, and each session one.
const datagramsATurn = 2048

// sessionsATurn is how many places of sessions are looked at in a turn for those that have been silent for too long.
const sessionsATurn = 256

// BeginTurn gives the sessions their share of a turn that begins.
func (u *Sessions) BeginTurn() { u.datagrams = 0 }

// SendReplies sends what endpoints have answered in the present turn.
func (u *Sessions) SendReplies() { u.out.Send() }

// AreNone reports whether there are neither ports nor sessions.
func (u *Sessions) AreNone() bool { return u.ports.Used()+u.all.Used() == 0 }

// Due is when Sweep has something to do.
func (u *Sessions) Due() time.Duration {
	if u.all.Used() > 0 || len(u.read) > 0 {
		return u.sweepAt
	}
	return monotonic.Never
}

// countLost counts the datagrams of the endpoint of f that the kernel had no room for, if it was read since it was last asked.
func (u *Sessions) countLost(f *session) {
	if f.read <= f.counted || f.fd == socket.None {
		return
	}
	f.counted = u.Turn.Number
	if lost, ok := sockopt.Lost(int(f.fd)); ok {
		f.CountLost(&f.visit, lost)
	}
}

// Sweep ends the sessions that have been silent for too long, of the next few places, and counts what the kernel had no room for. When the
// last were looked at, the first are looked at again after a while, at most [udp.CountPeriod].
func (u *Sessions) Sweep() {
	if u.Turn.Now < u.Due() {
		return
	}
	if u.swept == 0 {
		u.least = monotonic.Never
		for _, p := range u.read {
			if !p.closed {
				p.countLost()
			}
		}
		clear(u.read)
		u.read = u.read[:0]
	}
	sessions, next := u.all.Some(u.swept, sessionsATurn)
	for f := range sessions {
		u.countLost(*f)
		u.least = min(u.least, (*f).port.Silence())
		if _, idle := (*f).IsIdle(); idle {
			(*f).EndIdle()
			u.finish(*f)
		}
	}
	if u.swept = next; next < 0 {
		u.swept, u.sweepAt = 0, u.Turn.Now+sweepAfter(u.least)
	}
}

// sweepAfter is how long after one sweep the next one is due, where the silence that ends a session is so long at least.
func sweepAfter(silence time.Duration) time.Duration {
	return min(max(silence/32, time.Millisecond), udp.CountPeriod)
}

// packed is what is known of how full the kernel's queue of a port is.
type packed uint8

const (
	unasked packed = iota
	roomy
	crowded
)

// address is the address of a client as the socket of the port wants it.
func (p *port) address(client netip.AddrPort) netip.AddrPort {
	if p.dual && client.Addr().Is4() {
		return netip.AddrPortFrom(netip.AddrFrom16(client.Addr().As16()), client.Port())
	}
	return client
}

// Clients passes the selected sessions in a few places to each, ends those for which it returns true, and returns the next place; negative:
// there is none.
func (u *Sessions) Clients(from int, of *traffic.Selection, each func(*traffic.Client) (end bool)) (next int) {
	sessions, next := u.all.Some(from, reactor.ListedAStep)
	for slot := range sessions {
		f := *slot
		now := f.Now()
		if !of.Has(&now) {
			continue
		}
		if f.fd != socket.None {
			now.Local = socket.LocalName(int(f.fd))
		}
		if each(&now) {
			u.end(f, traffic.Killed)
		}
	}
	return next
}
