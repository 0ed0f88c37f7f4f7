package udp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Session is one UDP client's flow to one endpoint after another, whichever engine carries it. It decides, and opens
// and waits for nothing: the engine holds the sockets, says what happens on them, and does as the verdict says.
//
//	   Forward, Answered: the endpoint is gone, its name stands for others, its checks fail
//	             Refused                                        Move
//	      ┌──────────────────────────────────────────────────────────┐
//	an endpoint                                      none: datagrams wait
//	      └──────────────────────────────────────────────────────────┘
//	HandOver: what waited was sent ◀── the engine connects ◀── Next
//
//	either one ── End, GiveUp ──▶ ended ── Finish ──▶ counted
//
// When its endpoint leaves the rotation, refuses, or fails its checks while another one is ready, or when the name of the endpoint
// stands for other addresses, the session moves to another one, and the client sees nothing of it.
//
// An engine with several goroutines holds a lock while it calls Forward, Carried, Answered, Refused, HandOver, Departed, IsIdle, End,
// GiveUp and Ended. It holds the lock from Forward until Carried or Refused is told what came of sending, and while it reads from an
// endpoint, until Answered or Refused is told what it has read: the kernel reports a refusal once, to a send or to a read, and until the
// session knows of it nothing may be sent. The methods of the search (search.go), Delivered and Finish belong to one goroutine. Any
// goroutine may call SendOn and Drop. For a datagram nothing is allocated, unless it has to wait.
type Session struct {
	admit.Entry // in the limits
	Key         admit.SessionKey
	Claim       *engine.Claim // that it began under
	Control     []byte        // makes replies leave from Key.Local
	port        *Port
	began       time.Time
	sent        atomic.Uint64   // bytes that were handed to endpoints
	received    atomic.Uint64   // bytes that were handed to the client
	local       *netip.AddrPort // towards the endpoint; nil without engine.Config.NoteLocal
	header      []byte          // stands before each datagram to the endpoint; nil for none
	search

	at     *Visit // nil while an endpoint is being found
	ended  bool
	reason traffic.Reason     // why, once it has
	lost   traffic.DropReason // and why what waited then is dropped

	requests  int      // datagrams of the client so far, where that matters
	replies   int      // of the endpoint
	uncounted bool     // it began in a predecessor whose service did not count them
	perClient bool     // it is counted as one of its client address
	answered  bool     // the client was given a reply
	confirmed bool     // and has sent again after it
	waiting   [][]byte // what the client sends while there is no endpoint

	// What the endpoint was sent last, should it refuse that: then the next one gets it.
	unanswered bool
	kept       bool // false for one that is too long to keep
	last       []byte
}

// A search is what a session knows of the endpoints that it was offered.
type search struct {
	choice            rotation.Choice
	chosenBy          *engine.Claim      // the claim of the service by whose terms that is
	lookingSince      time.Duration      // when the search began, by the clock of package monotonic
	until             time.Duration      // when it is over, by the same clock
	waited            bool               // for an endpoint, with no attempt since
	over              bool               // no endpoint would fare better
	again             *rotation.Endpoint // is offered once more: its name may stand for other addresses by now
	doubted           *rotation.Endpoint // was offered once more
	trying            *rotation.Endpoint // the one that Next has returned, until it is known whether it will do
	tried             []netip.AddrPort   // addresses of the name that was offered last, of which none will do
	why               traffic.DropReason // why the endpoints tried so far won't do
	attempts          int                // endpoints that were tried, ever
	carried, previous *rotation.Endpoint // the last that carried the session, and the one before
	dialled           time.Duration      // how long it took until the first did
}

// choose begins the choice of an endpoint, by the terms of a claim of the session's service.
func (s *Session) choose(by *engine.Claim) { s.choice, s.chosenBy = by.Choose(s.Key.Client.Addr()), by }

// giveBack ends the attempt at the endpoint that Next has returned, if it is under way.
func (s *search) giveBack() {
	if s.trying != nil {
		s.trying.EndDial()
		s.trying = nil
	}
}

// A Visit is the time that a session spends with one endpoint, on one connected socket.
type Visit struct {
	Endpoint *rotation.Endpoint
	To       netip.AddrPort // the endpoint's address
	Began    time.Duration  // by the clock of package monotonic
	name     admit.Hold     // of To, if the endpoint is a name; from HandOver on
	answered bool           // the endpoint has sent something
	refused  bool           // it has refused a datagram
	trial    health.Trial   // of an endpoint that was ejected and never answers
	lost     uint32         // datagrams of the endpoint that the kernel had no room for, as far as they were counted
}

// goOn has what a predecessor counted not counted again.
func (v *Visit) goOn(t *handover.Talk) {
	if t.Lost != 0 {
		v.lost = t.Lost
	}
}

// isGone reports whether there is no such endpoint any more: its record does not list it, or its name does not have the address.
func (v *Visit) isGone() bool { return v.Endpoint.Gone() || v.name.Moved() }

// A Verdict says what the engine has to do about a datagram.
type Verdict uint8

const (
	Send Verdict = iota // send it on: see SendOn, and then Carried or Refused
	Done                // nothing: it waits, or was dropped and counted
	Move                // likewise; the session has left its endpoint: close its socket, and find another one
	Over                // nothing of the session: it has ended
)

// MaxWaiting bounds how many datagrams of one session wait. It is enough for a client in full flow
// while its session moves, which takes a millisecond, and for one that repeats its question while a
// name is looked up.
const MaxWaiting = 64

// MaxWaitingBytes bounds the bytes of those: a successor is given them in one message.
const MaxWaitingBytes = handover.MaxUnsent

// MaxKept bounds what is kept of a datagram until it is answered: one Ethernet frame. Questions are
// shorter. What is longer is part of a stream, and streams can do without one datagram.
const MaxKept = 1500

// Forward says what becomes of a datagram of the client: it is sent to the endpoint, or waits for one.
func (s *Session) Forward(datagram []byte) Verdict {
	if s.ended {
		return Over
	}
	s.Heard()
	if s.answered && !s.confirmed {
		s.confirmed = true
		s.port.base.Sessions.Confirm(&s.Entry)
	}
	verdict := Done
	if s.at != nil {
		if v := s.at; !v.isGone() && !s.choice.Leaves(v.Endpoint) {
			s.settle(v)
			return Send
		}
		s.at, verdict = nil, Move // D42: v0.4 went on sending to an endpoint that was gone
	}
	if !s.hold(datagram) {
		s.Drop(traffic.DropWaiting, 1)
	}
	return verdict
}

// SettleTime is how long an endpoint that never answers has not refused, either, when it counts as
// reached. Not every protocol has answers.
const SettleTime = time.Second

// settle counts an endpoint that never answers as well, if it has refused nothing for SettleTime although the session had sent it something before.
func (s *Session) settle(v *Visit) {
	if s.unanswered && !v.answered && !v.refused {
		v.Endpoint.Outlasted(&v.trial, SettleTime)
	}
}

// Counts reports whether the datagrams of the session are counted. Any goroutine may call it.
func (s *Session) Counts() bool {
	return !s.uncounted && (s.Claim.Limits.Requests > 0 || s.Claim.Limits.Replies > 0)
}

// Ask counts one more datagram of the client, where Counts says so, before Forward is asked about it. It reports false if the session has had as
// many as it may: the client begins another one, and this one goes on for replies.
func (s *Session) Ask() bool {
	most := s.Claim.Limits.Requests
	if most > 0 && s.requests >= most {
		return false
	}
	s.requests++
	return true
}

// IsAnswered reports whether the session ends because the client was given all replies that its service expects. An engine asks it after each
// reply, where Counts says so.
func (s *Session) IsAnswered() bool {
	each := s.Claim.Limits.Replies
	return each > 0 && !s.ended && len(s.waiting) == 0 && s.replies >= each*s.requests
}

// Carried notes that the endpoint was sent a datagram, as Forward had said. It keeps one that is short: a copy of some hundred bytes buys
// that no answer is lost with an endpoint.
func (s *Session) Carried(datagram []byte) {
	s.unanswered, s.kept = true, len(datagram) <= MaxKept
	if s.kept {
		s.last = append(s.last[:0], datagram...)
	}
}

// hold puts a copy of a datagram aside until there is an endpoint; false: no room for it.
func (s *Session) hold(datagram []byte) bool {
	bytesHeld := len(datagram)
	for _, before := range s.waiting {
		bytesHeld += len(before)
	}
	if len(s.waiting) >= MaxWaiting || bytesHeld > MaxWaitingBytes || !s.port.base.Sessions.Reserve(datagram) {
		return false
	}
	s.waiting = append(s.waiting, bytes.Clone(datagram))
	return true
}

// SendOn has send carry a datagram of the client to an endpoint, behind the PROXY header if the service wants one, and reports whether it was
// sent. If not, it was dropped, unless there is an error: then the endpoint, or the way to it, refuses, and the datagram is still the caller's.
func (s *Session) SendOn(datagram []byte, send func([]byte) error) (sent bool, refusal error) {
	n := len(s.header)
	if n == 0 {
		return s.sentOn(len(datagram), send(datagram))
	}
	if n+len(datagram) >= MaxDatagram {
		s.Drop(traffic.DropTooLong, 1)
		return false, nil
	}
	room := DatagramBuffers.Get().(*DatagramBuffer)
	defer DatagramBuffers.Put(room)
	copy(room[:], s.header)
	return s.sentOn(len(datagram), send(room[:n+copy(room[n:], datagram)]))
}

// setHeader makes the header that stands before each datagram of the session to its endpoint.
func (s *Session) setHeader() {
	s.header = proxyproto.AppendDatagram(nil, s.Claim.ProxyHeader, s.Key.Client, netip.AddrPortFrom(s.Key.Local.Addr, s.port.Number))
}

// sentOn notes what came of sending a datagram of n bytes to an endpoint. What is no refusal costs just the datagram.
func (s *Session) sentOn(n int, err error) (sent bool, refusal error) {
	switch {
	case err == nil:
		t := s.Claim.Tally
		s.sent.Add(uint64(n))
		t.Sent.Add(uint64(n))
		t.DatagramsSent.Add(1)
		return true, nil
	case sockopt.IsOurTrouble(err):
		s.Drop(traffic.DropNotSent, 1)
	case sockopt.IsTooLong(err):
		s.Drop(traffic.DropTooLong, 1)
	default:
		return false, err
	}
	return false, nil
}

// Refused takes the session from an endpoint that refuses, as err says. A refusal is about what the endpoint was sent before, also when it is
// the error of a later send: the datagram of that has not been sent, and Forward has to be asked about it once more. The last one that the
// endpoint was sent waits for the next endpoint. (Of several on their way at once, one may have been refused while a later one was not, and
// is now sent twice. UDP may do that, RFC 768.) Of several refusals of one endpoint the first counts, as an attempt that failed.
func (s *Session) Refused(v *Visit, err error) Verdict {
	switch {
	case s.at == v:
	case s.ended:
		if s.unanswered {
			s.Drop(traffic.DropEnded, 1)
			s.unanswered = false
		}
		return Over
	default:
		return Done
	}
	if v := glog.V(3); v {
		v.Infof("%s: UDP client %v has to leave %v: %v", s.Claim.Key, s.Key.Client, s.at.Endpoint.Addr, err)
	}
	s.Claim.Tally.DialFailures.Add(1)
	v.Endpoint.Failed(registry.UDP)
	s.doubt(v.Endpoint, []netip.AddrPort{v.To})
	v.refused, s.at = true, nil
	if s.unanswered && (!s.kept || !s.hold(s.last)) {
		s.Drop(traffic.DropUnreachable, 1)
	}
	s.unanswered = false
	return Move
}

// Answered says what becomes of a datagram of n bytes that an endpoint has sent: Send is to the client.
func (s *Session) Answered(v *Visit, n int) Verdict {
	v.answered = true
	v.Endpoint.Answered(registry.UDP)
	s.Heard()
	switch {
	case s.at != v:
		s.Drop(traffic.DropEnded, 1)
		return Done
	case v.isGone() && !s.unanswered:
		s.at = nil // D42: it may answer what it was asked before it went, and no more
		s.Drop(traffic.DropEnded, 1)
		return Move
	}
	s.answered, s.unanswered = true, false
	if n == MaxDatagram {
		s.Drop(traffic.DropTooLong, 1)
		return Done
	}
	s.replies++
	return Send
}

// Delivered notes what came of sending a reply of n bytes to the client. A failure costs just the reply.
func (s *Session) Delivered(n int, err error) {
	switch {
	case err == nil:
		t := s.Claim.Tally
		s.received.Add(uint64(n))
		t.Received.Add(uint64(n))
		t.DatagramsReceived.Add(1)
	case errors.Is(err, net.ErrClosed): // the port was closed under it
		s.Drop(traffic.DropEnded, 1)
	case sockopt.IsOurTrouble(err), errors.Is(err, os.ErrDeadlineExceeded): // the latter: the network card has stopped sending
		s.Drop(traffic.DropNotSent, 1)
	default:
		s.Drop(traffic.DropClient, 1)
	}
}

// CountLost counts the datagrams of an endpoint that the kernel had no room for: so many since the socket was opened. As with
// [Port.CountLost], an engine asks the kernel some time after it has read from the socket, and before it closes it. One goroutine at a
// time may call it for a visit.
func (s *Session) CountLost(v *Visit, total uint32) {
	if more := total - v.lost; more != 0 {
		v.lost = total
		s.Drop(traffic.DropQueueFull, int(more))
	}
}

// Abandon drops datagrams that an endpoint has sent and the session has not read when it leaves that endpoint.
func (s *Session) Abandon(n int) {
	if n > 0 {
		s.Drop(traffic.DropEnded, n)
	}
}

// HandOver gives an endpoint that was just connected to what waited, in order: so many have been sent, and Send means that
// next is to be sent as well. With Done the visit has begun. When the endpoint refuses one of them, it has not, and all
// go on waiting: what it had been sent before is what it refused.
func (s *Session) HandOver(v *Visit, sent int) (next []byte, verdict Verdict) {
	switch {
	case s.ended:
		return nil, Over
	case sent < len(s.waiting):
		return s.waiting[sent], Send
	case sent > 0:
		s.Carried(s.waiting[sent-1])
		s.Heard() // or a client that has waited for longer than it may be silent would have no time to be answered
	}
	s.port.base.Sessions.Unreserve(s.waiting)
	s.settle(v) // begins its trial
	v.name = s.port.base.Resolver.Hold(v.Endpoint.Addr.Host, v.To.Addr())
	s.at, s.waiting = v, nil
	return nil, Done
}

// listener is what the client sends to.
func (s *Session) listener() registry.ListenerID {
	return registry.ListenerID{Addr: s.Claim.ID.Addr, Protocol: registry.UDP, Number: s.port.Number}
}

// Now returns the client as it is. The local address is for the engine to add. An engine with several goroutines holds the lock.
func (s *Session) Now() traffic.Client {
	now := traffic.Client{
		Listener: s.listener(),
		Service:  s.Claim.Key,
		Client:   s.Key.Client,
		Age:      time.Since(s.began),
		Idle:     s.SilentFor(),
		Sent:     s.sent.Load(),
		Received: s.received.Load(),
	}
	if s.at != nil {
		now.Endpoint = s.at.Endpoint.Addr
	}
	return now
}

// Drop counts datagrams of the session that are not carried further.
func (s *Session) Drop(why traffic.DropReason, n int) {
	s.port.base.Lines.Drop(s.Claim, why, n, s.Key.Client)
}
