package epoll

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/golang/glog"
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A session carries the datagrams of one UDP client. It keeps the same promises as a session of package portable, without a
// goroutine, and so without a lock. Its loop reads what its client sends (see udpport_linux.go) and
// what its endpoint answers, and moves it when its endpoint has gone or refuses.
type session struct {
	admit.Entry
	port       *epollUDP
	key        admit.SessionKey
	claim      *engine.Claim
	control    []byte // makes replies leave from key.local
	index      int32
	generation uint32
	live       bool

	fd        int32 // connected to the endpoint; noDescriptor while there is none
	endpoint  *balance.Endpoint
	connected time.Duration // when it was
	replied   bool          // the endpoint has sent something
	looking   bool          // its name is being looked up
	deferred  bool          // the loop goes on looking for an endpoint in a later turn
	until     time.Duration // when the search for an endpoint is over
	read      uint64        // the turn in which it was last read
	eager     uint8         // how many datagrams were, at most

	answered, confirmed bool // the client was given a reply; and has sent again after it
	unanswered, kept    bool // what the client sent last was not answered yet; and is in last
	last                []byte
	waiting             [][]byte // what the client sends while there is no endpoint

	choice            balance.Choice
	why               traffic.DropReason // why the endpoints tried so far won't do
	attempts          int
	carried, previous *balance.Endpoint // the last that carried it, and the one before
	began             time.Time
	dialled           time.Duration
	sent, received    uint64
}

func (f *session) token() token { return token{answering, f.index, f.generation} }

// forward sends what the client sent on to the endpoint, or puts it aside while there is none.
func (l *loop) forward(f *session, datagram []byte) {
	f.Heard()
	if f.answered && !f.confirmed {
		f.confirmed = true
		l.engine.Sessions.Confirm(&f.Entry)
	}
	if f.fd != noDescriptor && f.endpoint.Gone() {
		l.desert(f, false) // D42: v0.4 went on sending to an endpoint that was gone
		l.redirect(f)
		if !f.live {
			l.dropFor(f, f.why, 1)
			return
		}
	}
	if f.fd == noDescriptor {
		if !l.hold(f, datagram) {
			l.dropFor(f, traffic.DropWaiting, 1)
		}
		return
	}
	f.keep(datagram)
	if err := l.sendOn(f, datagram); err != nil {
		l.refusedBy(f, err)
	}
}

// sendOn sends one datagram to the endpoint. It returns an error when the endpoint, or the way to it,
// refuses; other failures cost just this datagram.
func (l *loop) sendOn(f *session, datagram []byte) error {
	_, errno := send(int(f.fd), datagram)
	if errno == unix.EMSGSIZE { // it may be an earlier one that was too long for the path: see udpBackend.send
		_, errno = send(int(f.fd), datagram)
	}
	switch {
	case errno == 0:
		n := uint64(len(datagram))
		f.sent += n
		t := f.claim.Tally
		t.Sent.Add(n)
		t.DatagramsSent.Add(1)
		return nil
	case sockopt.IsOurTrouble(errno):
		l.dropFor(f, traffic.DropNotSent, 1)
		return nil
	case sockopt.IsTooLong(errno):
		l.dropFor(f, traffic.DropTooLong, 1)
		return nil
	}
	return errno
}

// keep remembers a datagram that is being sent, should the endpoint refuse it: then the next one gets it.
func (f *session) keep(datagram []byte) {
	f.unanswered, f.kept = true, len(datagram) <= engine.MaxKept
	if f.kept {
		f.last = append(f.last[:0], datagram...)
	}
}

// hold puts a copy of a datagram aside until there is an endpoint; false: no room for it.
func (l *loop) hold(f *session, datagram []byte) bool {
	if len(f.waiting) >= engine.MaxWaiting || !l.engine.Sessions.Reserve(datagram) {
		return false
	}
	f.waiting = append(f.waiting, bytes.Clone(datagram))
	return true
}

// answers reads what the endpoint of f sends, and has it sent to the client at the end of the turn. A
// session whose endpoint keeps answering in turn after turn is read ever more often in each.
func (l *loop) answers(f *session) {
	if l.turn == f.read+1 {
		f.eager = min(2*f.eager, replyBatch)
	} else {
		f.eager = 1
	}
	f.read = l.turn
	for range f.eager {
		if f.fd == noDescriptor || !f.live {
			return
		}
		n, errno := receive(int(f.fd), l.nextReply()[:])
		switch errno {
		case 0:
			if l.answer(f, n) {
				l.reply(f, n)
			}
			if l.datagrams++; l.datagrams >= datagramsATurn {
				return
			}
		case unix.EAGAIN:
			return
		case unix.ENOMEM, unix.ENOBUFS:
			return // the endpoint is not to blame; the next turn tries again
		case unix.EMSGSIZE: // an earlier one we sent was too long for the path
		default:
			l.refusedBy(f, errno)
			return
		}
	}
}

// answer takes in that the endpoint has sent n bytes, and tells whether the client is to have them.
func (l *loop) answer(f *session, n int) bool {
	f.replied = true
	f.endpoint.Answered(registry.UDP)
	f.Heard()
	if f.endpoint.Gone() && !f.unanswered {
		l.dropFor(f, traffic.DropEnded, 1) // D42: it may answer what it was asked before it went, and no more
		l.desert(f, false)
		l.redirect(f)
		return false
	}
	f.answered, f.unanswered = true, false
	if n == engine.MaxDatagram {
		l.dropFor(f, traffic.DropTooLong, 1)
		return false
	}
	return true
}

// refusedBy takes f from an endpoint that refuses. The datagram that was refused goes to the next one, for
// it reached nobody.
func (l *loop) refusedBy(f *session, err error) {
	e := f.endpoint
	e.Failed(registry.UDP)
	if v := glog.V(3); v {
		v.Infof("%s: UDP client %v has to leave %v: %v", f.claim.Key, f.key.Client, e.Addr, err)
	}
	l.desert(f, true)
	if f.unanswered && (!f.kept || !l.hold(f, f.last)) {
		l.dropFor(f, traffic.DropUnreachable, 1)
	}
	l.redirect(f)
}

// desert takes f from its endpoint, and decides whether it may be offered endpoints anew. It may if this
// one had been reached. Otherwise it goes on with those that it was not offered yet, so that when
// all refuse it comes to an end.
func (l *loop) desert(f *session, refused bool) {
	e := f.endpoint
	closeFD(int(f.fd))
	f.fd, f.endpoint = noDescriptor, nil
	e.Left()
	f.why = traffic.DropUnreachable
	settled := f.replied || l.now-f.connected > engine.SettleTime
	if settled || e.Gone() {
		f.choice, f.why = f.claim.Choose(f.key.Client.Addr()), traffic.DropNoEndpoints
		f.until = l.now + l.engine.Cfg.DialTotalTimeout
	}
	if refused && !settled { // then it was only tried
		f.carried = f.previous
		f.claim.Tally.DialFailures.Add(1)
	}
}

// redirect finds an endpoint for f, in this turn or in later ones. When there is none in time, f ends.
func (l *loop) redirect(f *session) {
	for f.fd == noDescriptor && !f.looking && !f.deferred {
		if f.deferred = f.choice.Offers > 0 && !l.mayAttempt(); f.deferred {
			l.deferred = append(l.deferred, f.token())
			return
		}
		e, ok := f.choice.Next()
		switch {
		case !ok, f.choice.Offers > 1 && l.now >= f.until:
			l.endSession(f, f.whyUnserved())
			return
		case e.Gone():
		case e.Addr.Host != "":
			addrs, err, ok := l.engine.Resolver.Recall(registry.UDP, e.Addr)
			if !ok {
				l.lookUpSession(f, e)
				return
			}
			if !l.directAny(f, e, addrs, err) {
				return
			}
		default:
			to := netip.AddrPortFrom(e.Addr.IP.Addr().Unmap(), e.Addr.IP.Port())
			err := l.engine.Resolver.Refuse(registry.UDP, to)
			if err == nil {
				err = l.direct(f, e, to)
			}
			if err != nil && !l.cannot(f, e, err) {
				return
			}
		}
	}
}

// direct makes e, at an address of its, the endpoint of f, and sends it what waited. When it cannot, all of
// that goes on waiting.
func (l *loop) direct(f *session, e *balance.Endpoint, to netip.AddrPort) error {
	if f.key.Loops(to, f.port.number) {
		return admit.ErrLoop
	}
	fd, errno := connectUDP(to)
	if errno != 0 {
		return errno
	}
	err := l.suspect(registry.UDP, fd, to)
	if err == nil {
		err = l.watch(fd, f.token(), unix.EPOLLIN)
	}
	if err != nil {
		closeFD(fd)
		return err
	}
	f.fd, f.replied, f.connected = int32(fd), false, l.now
	for _, datagram := range f.waiting {
		f.keep(datagram)
		if err := l.sendOn(f, datagram); err != nil {
			closeFD(fd)
			f.fd = noDescriptor
			return err
		}
	}
	l.engine.Sessions.Unreserve(f.waiting)
	f.waiting = nil
	f.endpoint = e
	f.attempts++
	switch f.carried {
	case nil:
		f.dialled = time.Since(f.began)
	case e:
	default:
		f.claim.Tally.Moved.Add(1)
	}
	f.previous, f.carried = f.carried, e
	f.choice.Reached(e)
	e.Given()
	if v := glog.V(3); v {
		v.Infof("%s: UDP %v → %v", f.claim.Key, f.key.Client, e.Addr)
	}
	return nil
}

// cannot takes in why e cannot be the endpoint of f, and tells whether f is still to be found one.
func (l *loop) cannot(f *session, e *balance.Endpoint, err error) bool {
	if v := glog.V(3); v {
		v.Infof("%s: UDP client %v cannot have %v: %v", f.claim.Key, f.key.Client, e.Addr, err)
	}
	switch f.why = engine.WhyUnusable(err); f.why {
	case traffic.DropDescriptorLimit:
		l.endSession(f, traffic.DescriptorLimit)
		return false
	case traffic.DropOwnListener, traffic.DropNotAllowed, traffic.DropLoop:
		l.engine.Lines.ReportUnusable(f.claim.Key, e, err)
		if f.why != traffic.DropLoop { // which says something about this client only
			f.choice.Unusable(e)
		}
	case traffic.DropUnresolved:
		f.choice.Unusable(e)
	default:
		f.attempts++
		f.claim.Tally.DialFailures.Add(1)
		f.choice.Failed(e)
	}
	return true
}
