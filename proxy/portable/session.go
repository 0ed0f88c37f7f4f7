package portable

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A session is one UDP client's flow to one endpoint, for as long as either side speaks. When the
// endpoint leaves its rotation or refuses, the session moves to another one, and the client sees
// nothing of it: replies go on leaving from the address that it spoke to.
//
// Two goroutines work on a session: the socket's, in forward, and its own, in run. The latter finds
// endpoints and connects to them: a session without a backend is one that it finds an endpoint for.
type session struct {
	admit.Entry // in the limits
	socket      *udpSocket
	key         admit.SessionKey
	claim       *engine.Claim
	control     []byte // makes replies leave from key.local

	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	began time.Time
	sent  atomic.Uint64 // bytes that were handed to endpoints

	// Used by run only, and by begin before it.
	choice   balance.Choice
	until    time.Duration      // when the search for an endpoint is over, by the clock of Now
	why      traffic.DropReason // why the endpoints tried so far won't do
	attempts int                // endpoints that were tried
	endpoint *balance.Endpoint  // the last that carried it; nil when none has yet
	previous *balance.Endpoint  // the one before
	dialled  time.Duration      // how long it took until the first did
	received uint64             // bytes that were handed to the client

	mu        sync.Mutex // guards the fields below; never held while sending or receiving
	ended     bool
	reason    traffic.Reason // why, once it has
	answered  bool           // the client was given a reply
	confirmed bool           // and has sent again after it
	backend   *udpBackend    // nil while an endpoint is being found
	waiting   [][]byte       // what the client sends meanwhile

	// What the client sent last, should the endpoint refuse it: then the next one gets it.
	unanswered bool
	kept       bool // false for one that is too long to keep
	last       []byte
}

func newSession(u *udpSocket, key admit.SessionKey, owner *engine.Claim) *session {
	s := &session{
		socket:  u,
		key:     key,
		claim:   owner,
		control: sockopt.ControlFrom(key.Local),
		done:    make(chan struct{}),
		began:   time.Now(),
	}
	s.Entry.Socket, s.Session = &u.ranks, s
	s.until = monotonic.Now() + u.engine.Cfg.DialTotalTimeout
	s.ctx, s.cancel = context.WithCancel(u.ctx)
	s.Heard()
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
	s.Heard()
	confirms := s.answered && !s.confirmed
	s.confirmed = s.confirmed || confirms
	b, ok := s.backend, true
	if b != nil && b.endpoint.Gone() {
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
		s.socket.engine.Sessions.Confirm(&s.Entry)
	}
	if !ok {
		s.drop(traffic.DropWaiting, 1)
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
		t := s.claim.Tally
		s.sent.Add(uint64(len(datagram)))
		t.Sent.Add(uint64(len(datagram)))
		t.DatagramsSent.Add(1)
		return nil
	case sockopt.IsOurTrouble(err):
		s.drop(traffic.DropNotSent, 1)
		return nil
	case sockopt.IsTooLong(err):
		s.drop(traffic.DropTooLong, 1)
		return nil
	}
	return err
}

// run is the session's own goroutine: it carries the replies of one endpoint after another until
// the session ends. It is given its first endpoint to try, or else the backend that came of that.
func (s *session) run(first *balance.Endpoint, b *udpBackend) {
	defer s.finish()
	if first != nil {
		b = s.try(first)
	}
	for b != nil || s.move(&b) {
		s.carryReplies(b)
		b.conn.Close()
		b.endpoint.Left()
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
			engine.DatagramBuffers.Put(buf)
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
	b.endpoint.Answered(registry.UDP)
	s.mu.Lock()
	current := s.backend == b
	if current && b.endpoint.Gone() && !s.unanswered {
		s.leaveLocked() // D42: it may answer what it was asked before it went, and no more
		current = false
	}
	if current {
		s.answered, s.unanswered = true, false
	}
	s.mu.Unlock()
	s.Heard()
	if !current {
		s.drop(traffic.DropEnded, 1)
		return
	}
	if len(datagram) == engine.MaxDatagram {
		s.drop(traffic.DropTooLong, 1)
		return
	}
	_, _, err := s.socket.conn.WriteMsgUDPAddrPort(datagram, s.control, s.key.Client)
	switch {
	case err == nil:
		t := s.claim.Tally
		s.received += uint64(len(datagram))
		t.Received.Add(uint64(len(datagram)))
		t.DatagramsReceived.Add(1)
	case s.ctx.Err() != nil: // the port was closed under it
		s.drop(traffic.DropEnded, 1)
	default:
		s.drop(traffic.DropClient, 1)
	}
}

// stay is asked when the read deadline of b has passed. The deadline was right when it was set;
// since then either side may have spoken, which moves it: this way no timer is touched for each
// datagram. Otherwise the session has been silent for too long, and ends.
func (s *session) stay(b *udpBackend) bool {
	timeout := s.socket.engine.Cfg.UDPTimeout
	s.mu.Lock()
	if s.backend != b {
		s.mu.Unlock()
		return false // the deadline was a wake-up call: the session has left
	}
	if rest := timeout - s.SilentFor(); rest > 0 && b.conn.SetReadDeadline(time.Now().Add(rest)) == nil {
		s.mu.Unlock()
		return true
	}
	s.endLocked(traffic.Idle) // in the same step, so that nothing can be forwarded in between
	s.mu.Unlock()
	glog.V(1).Infof("UDP session of %v for %s was silent for %v", s.key.Client, s.claim.Key, timeout)
	return false
}

func (s *session) drop(why traffic.DropReason, n int) {
	s.socket.engine.Lines.Drop(s.claim, why, n, s.key.Client)
}
