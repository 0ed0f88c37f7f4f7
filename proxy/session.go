package proxy

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A sessionKey tells sessions apart. A client that speaks to two of our addresses has two: each
// expects its replies from another one.
type sessionKey struct {
	client netip.AddrPort // unmapped: an IPv4 client is the same on a socket of either family
	local  localAddr
}

// A session is one UDP client's flow to one endpoint, for as long as either side speaks. When the
// endpoint leaves its rotation or refuses, the session moves to another one, and the client sees
// nothing of it: replies go on leaving from the address that it spoke to.
//
// Two goroutines work on a session: the socket's, in forward, and its own, in run. The latter finds
// endpoints and connects to them: a session without a backend is one that it finds an endpoint for.
type session struct {
	place   // in the limits
	socket  *udpSocket
	key     sessionKey
	claim   *claim
	control []byte // makes replies leave from key.local

	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	began time.Time
	sent  atomic.Uint64 // bytes that were handed to endpoints

	// Used by run only, and by begin before it.
	choice   choice
	until    time.Duration // when the search for an endpoint is over, by the clock of sinceStart
	why      DropReason    // why the endpoints tried so far won't do
	attempts int           // endpoints that were tried
	endpoint *endpoint     // the last that carried it; nil when none has yet
	previous *endpoint     // the one before
	dialled  time.Duration // how long it took until the first did
	received uint64        // bytes that were handed to the client

	mu        sync.Mutex // guards the fields below; never held while sending or receiving
	ended     bool
	reason    Reason      // why, once it has
	answered  bool        // the client was given a reply
	confirmed bool        // and has sent again after it
	backend   *udpBackend // nil while an endpoint is being found
	waiting   [][]byte    // what the client sends meanwhile

	// What the client sent last, should the endpoint refuse it: then the next one gets it.
	unanswered bool
	kept       bool // false for one that is too long to keep
	last       []byte
}

// maxWaiting bounds how many datagrams of one session wait. It is enough for a client in full flow
// while its session moves, which takes a millisecond, and for one that repeats its question while a
// name is looked up.
const maxWaiting = 64

// maxKept bounds what is kept of a datagram until it is answered: one Ethernet frame. Questions are
// shorter. What is longer is part of a stream, and streams can do without one datagram.
const maxKept = 1500

func newSession(u *udpSocket, key sessionKey, owner *claim) *session {
	s := &session{
		socket:  u,
		key:     key,
		claim:   owner,
		control: controlFrom(key.local),
		done:    make(chan struct{}),
		began:   time.Now(),
	}
	s.place.socket, s.tenant = &u.ranks, s
	s.until = sinceStart() + u.engine.cfg.DialTotalTimeout
	s.ctx, s.cancel = context.WithCancel(u.ctx)
	s.heard()
	return s
}

// forward sends what the client sent on to the endpoint, or puts it aside while there is none. It
// returns false when the session has ended. It never waits, and allocates nothing.
func (s *session) forward(datagram []byte) bool {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return false
	}
	s.heard()
	confirms := s.answered && !s.confirmed
	s.confirmed = s.confirmed || confirms
	b, ok := s.backend, true
	if b != nil && b.endpoint.gone() {
		s.leaveLocked() // D42: v0.4 went on sending to an endpoint that was gone
		b = nil
	}
	if b == nil {
		ok = s.waitLocked(datagram)
	} else {
		s.keepLocked(datagram)
	}
	s.mu.Unlock()

	if confirms {
		s.socket.engine.sessions.confirm(&s.place)
	}
	if !ok {
		s.drop(dropWaiting, 1)
	}
	if b != nil {
		if err := s.send(b, datagram); err != nil {
			s.refused(b, err)
		}
	}
	return true
}

// send sends one datagram to an endpoint. It returns an error when the endpoint, or the way to it,
// refuses; other failures cost just this datagram.
func (s *session) send(b *udpBackend, datagram []byte) error {
	err := b.send(datagram)
	switch {
	case err == nil:
		t := s.claim.tally
		s.sent.Add(uint64(len(datagram)))
		t.sent.Add(uint64(len(datagram)))
		t.datagramsSent.Add(1)
		return nil
	case isOurTrouble(err):
		s.drop(dropNotSent, 1)
		return nil
	case isTooLong(err):
		s.drop(dropTooLong, 1)
		return nil
	}
	return err
}

// run is the session's own goroutine: it carries the replies of one endpoint after another until
// the session ends. It is given its first endpoint to try, or else the backend that came of that.
func (s *session) run(first *endpoint, b *udpBackend) {
	defer s.finish()
	if first != nil {
		b = s.try(first)
	}
	for b != nil || s.move(&b) {
		s.carryReplies(b)
		b.conn.Close()
		b.endpoint.left()
		s.reconsider(b)
		b = nil
	}
}

// carryReplies gives the client what the endpoint sends, until the session has left that endpoint.
func (s *session) carryReplies(b *udpBackend) {
	for {
		buf, n, err := b.receive()
		switch {
		case err == nil:
			s.reply(b, buf[:n])
			datagramBuffers.Put(buf)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !s.stay(b) {
				return
			}
		default:
			s.refused(b, err)
			return
		}
	}
}

// reply gives the client one datagram of the endpoint, unless the session has left that endpoint.
func (s *session) reply(b *udpBackend, datagram []byte) {
	b.answered = true
	b.endpoint.answered(registry.UDP)
	s.mu.Lock()
	current := s.backend == b
	if current && b.endpoint.gone() && !s.unanswered {
		s.leaveLocked() // D42: it may answer what it was asked before it went, and no more
		current = false
	}
	if current {
		s.answered, s.unanswered = true, false
	}
	s.mu.Unlock()
	s.heard()
	if !current {
		s.drop(dropEnded, 1)
		return
	}
	if len(datagram) == maxDatagram {
		s.drop(dropTooLong, 1)
		return
	}
	_, _, err := s.socket.conn.WriteMsgUDPAddrPort(datagram, s.control, s.key.client)
	switch {
	case err == nil:
		t := s.claim.tally
		s.received += uint64(len(datagram))
		t.received.Add(uint64(len(datagram)))
		t.datagramsReceived.Add(1)
	case s.ctx.Err() != nil: // the port was closed under it
		s.drop(dropEnded, 1)
	default:
		s.drop(dropClient, 1)
	}
}

// stay is asked when the read deadline of b has passed. The deadline was right when it was set;
// since then either side may have spoken, which moves it: this way no timer is touched for each
// datagram. Otherwise the session has been silent for too long, and ends.
func (s *session) stay(b *udpBackend) bool {
	timeout := s.socket.engine.cfg.UDPTimeout
	s.mu.Lock()
	if s.backend != b {
		s.mu.Unlock()
		return false // the deadline was a wake-up call: the session has left
	}
	if rest := timeout - s.silentFor(); rest > 0 && b.conn.SetReadDeadline(time.Now().Add(rest)) == nil {
		s.mu.Unlock()
		return true
	}
	s.endLocked(Idle) // in the same step, so that nothing can be forwarded in between
	s.mu.Unlock()
	glog.V(1).Infof("UDP session of %v for %s was silent for %v", s.key.client, s.claim.key, timeout)
	return false
}

func (s *session) drop(why DropReason, n int) {
	s.socket.engine.lines.drop(s.claim, why, n, s.key.client)
}
