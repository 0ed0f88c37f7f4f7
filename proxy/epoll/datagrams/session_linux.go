package datagrams

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
	"kubeproxy/registry"
)

// forward sends what the client sent on to the endpoint, or puts it aside while there is none. It reports false when the session has ended.
func (u *Sessions) forward(f *session, datagram []byte) bool {
	if f.Counts() && !f.Ask() {
		return false
	}
	for {
		verdict := f.Forward(datagram)
		switch verdict {
		case udp.Send:
			sent, err := u.send(f, datagram)
			if err != nil {
				u.refused(f, err)
				continue
			}
			if sent {
				f.Carried(datagram)
			}
		case udp.Move:
			u.move(f)
		}
		return verdict != udp.Over
	}
}

// send sends one datagram to the endpoint, as [udp.Session.SendOn] says.
func (u *Sessions) send(f *session, datagram []byte) (sent bool, refusal error) {
	return f.SendOn(datagram, func(whole []byte) error {
		_, errno := socket.Send(int(f.fd), whole)
		if errno == unix.EMSGSIZE { // it may be an earlier one that was too long for the path: see udpBackend.send
			_, errno = socket.Send(int(f.fd), whole)
		}
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// Answered reads what the endpoint of the session that an event is about has sent, unless that has ended.
func (u *Sessions) Answered(t reactor.Token) {
	if slot := u.all.At(t.Index, t.Generation); slot != nil {
		u.answers(*slot)
	}
}

// answers reads what the endpoint of f sends, and has it sent to the client at the end of the turn. A
// session whose endpoint keeps answering in turn after turn is read ever more often in each.
func (u *Sessions) answers(f *session) {
	if u.Turn.Number == f.read+1 {
		f.eager = min(2*f.eager, socket.ReplyBatch)
	} else {
		f.eager = 1
	}
	f.read = u.Turn.Number
	u.makeOut()
	for range f.eager {
		if f.fd == socket.None {
			return
		}
		n, errno := socket.Receive(int(f.fd), u.out.Room()[:])
		switch errno {
		case 0:
			if u.reply(f, n); u.datagrams >= datagramsATurn {
				return
			}
		case unix.EAGAIN:
			return
		case unix.ENOMEM, unix.ENOBUFS:
			return // the endpoint is not to blame; the next turn tries again
		case unix.EMSGSIZE: // an earlier one we sent was too long for the path
		default:
			u.refused(f, errno)
			return
		}
	}
}

// makeOut makes the room for replies. It is large, so a loop without UDP has none.
func (u *Sessions) makeOut() {
	if u.out == nil {
		u.out = new(socket.SendBatch)
	}
}

// reply has a datagram of n bytes, which the endpoint of f has sent and which is in the room for replies, sent to the client at the end of the turn.
func (u *Sessions) reply(f *session, n int) {
	u.datagrams++
	switch f.Answered(&f.visit, n) {
	case udp.Send:
		u.out.Add(f, f.port.FD, f.port.address(f.Key.Client), f.Control, n)
	case udp.Move:
		u.move(f)
	}
	if f.Counts() && f.IsAnswered() {
		u.end(f, traffic.Answered)
	}
}

// refused takes f from an endpoint that refuses.
func (u *Sessions) refused(f *session, err error) {
	if f.Refused(&f.visit, err) == udp.Move {
		u.move(f)
	}
}

// move closes the socket to the endpoint that f has left, and finds f another.
func (u *Sessions) move(f *session) {
	u.depart(f)
	u.redirect(f)
}

// redirect finds an endpoint for f, in this turn or in later ones. When there is none in time, f ends.
func (u *Sessions) redirect(f *session) {
	for f.fd == socket.None && !f.looking && !f.deferred && !f.Ended() {
		if f.deferred = f.IsRetry() && !u.Searches.MayAttempt(); f.deferred {
			u.Searches.Postpone(f.token())
			return
		}
		e, ok := f.Next(u.Turn.Now)
		if !ok && u.await(f) {
			return
		}
		if !ok {
			f.GiveUp()
			u.finish(f)
			return
		}
		if e.Addr.Host == "" {
			to := netip.AddrPortFrom(e.Addr.IP.Addr().Unmap(), e.Addr.IP.Port())
			err := u.Engine.Resolver.Refuse(registry.UDP, to)
			if err == nil {
				err = u.direct(f, e, to)
			}
			if err != nil {
				f.Cannot(e, err)
			}
		} else if addrs, err, ok := u.Engine.Resolver.Recall(registry.UDP, e.Addr); ok {
			u.directAny(f, e, addrs, err)
		} else {
			u.lookUp(f, e)
		}
	}
}

// await has f look for an endpoint again when there may be one; false: that is of no use.
func (u *Sessions) await(f *session) bool {
	ctx, cancel, ok := f.Awaits()
	if !ok {
		return false
	}
	f.looking = true
	stop := context.AfterFunc(ctx, func() {
		cancel()
		u.Requests.Do(func() {
			if !f.Ended() {
				f.looking, f.stopWaiting = false, nil
				u.redirect(f)
			}
		})
	})
	f.stopWaiting = func() {
		stop()
		cancel()
	}
	return true
}

// Search goes on with a search that was postponed, unless its session has ended.
func (u *Sessions) Search(t reactor.Token) {
	if f := u.all.At(t.Index, t.Generation); f != nil && (*f).deferred {
		(*f).deferred = false
		u.redirect(*f)
	}
}

// lookUp resolves the name of an endpoint beside the loop.
func (u *Sessions) lookUp(f *session, e *rotation.Endpoint) {
	f.looking = true
	u.Searches.LookUp(registry.UDP, e, f.LookUpTimeout(), func(addrs []netip.AddrPort, err error) {
		if !f.Ended() {
			f.looking = false
			u.directAny(f, e, addrs, err)
			u.redirect(f)
		}
	})
}

// directAny makes e the endpoint of f, at the first of its addresses that can be, unless its name was not resolved, because
// of err.
func (u *Sessions) directAny(f *session, e *rotation.Endpoint, addrs []netip.AddrPort, err error) {
	for _, to := range f.Arrange(e, addrs) {
		if err = u.direct(f, e, to); err == nil {
			return
		}
	}
	f.Cannot(e, err)
}

// direct makes e, at an address of its, the endpoint of f, and sends it what waited.
func (u *Sessions) direct(f *session, e *rotation.Endpoint, to netip.AddrPort) error {
	if f.Key.Loops(to, f.port.Number) {
		return admit.ErrLoop
	}
	fd, errno := socket.ConnectUDP(to)
	if errno != 0 {
		return errno
	}
	err := u.Searches.Suspect(registry.UDP, fd, to)
	if err == nil {
		err = u.Poller.Watch(fd, f.token(), unix.EPOLLIN)
	}
	if err == nil {
		f.fd, f.visit = int32(fd), udp.Visit{Endpoint: e, To: to, Began: u.Turn.Now}
		err = u.handOver(f)
	}
	if err != nil {
		socket.Close(fd)
		f.fd = socket.None
		return err
	}
	if u.Engine.Cfg.NoteLocal {
		f.GoesFrom(socket.LocalName(fd))
	}
	f.Reached(&f.visit)
	return nil
}

// handOver sends what waited to the endpoint that f was connected to.
func (u *Sessions) handOver(f *session) error {
	for sent := 0; ; sent++ {
		next, verdict := f.HandOver(&f.visit, sent)
		if verdict != udp.Send {
			return nil
		}
		if _, err := u.send(f, next); err != nil {
			return err
		}
	}
}
