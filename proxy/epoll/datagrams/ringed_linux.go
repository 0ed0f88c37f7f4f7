package datagrams

import (
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/ring"
	"kubeproxy/proxy/epoll/socket"
)

// How datagrams pass through a ring. One receive for each session brings all that its endpoint sends; what clients send is passed on by the
// ring as well, where it lies in the batch that it came in. Batches of clients' datagrams, and of replies, are received and sent as without
// a ring: that is one system call for many already.

// Of the buffers for what endpoints send: how many, for which see package relay, and their group.
const (
	RingBuffers = 512
	RingGroup   = 2
)

// ringMost is the longest datagram that the ring sends. A longer one may be too long for the path, which a later one is told of, and then
// has to be sent again.
const ringMost = 1200

// ask has the ring receive what the endpoint of f sends, if there is a ring.
func (u *Sessions) ask(f *session) {
	if u.Poller.IsOpen() && f.fd != socket.None && !f.asked {
		f.asked = true
		u.Poller.ReceiveAll(int(f.fd), u.Buffers, f.token())
	}
}

// join moves f, which the kernel has told of by an event, to the ring.
func (u *Sessions) join(f *session) {
	if u.Poller.IsOpen() && f.fd != socket.None && !f.asked {
		u.Poller.Unwatch(int(f.fd))
		u.ask(f)
	}
}

// ringSends has the ring send a datagram of the batch to the endpoint of f, and reports whether it will.
func (u *Sessions) ringSends(f *session, datagram []byte) bool {
	if len(datagram) > ringMost || f.HasHeader() {
		u.settle() // what was sent before goes first
		return false
	}
	u.lent = true
	u.Poller.Send(int(f.fd), datagram, reactor.Token{Kind: u.Asking, Index: f.index, Generation: f.generation})
	return true
}

// settle has the ring send what it was lent of the batch.
func (u *Sessions) settle() {
	if u.lent {
		u.Poller.Submit()
		u.lent = false
	}
}

// Passed takes in what came of a datagram that the ring has sent to an endpoint.
func (u *Sessions) Passed(t reactor.Token, done *ring.Completion) {
	slot := u.all.At(t.Index, t.Generation)
	if slot == nil {
		return
	}
	var err error
	if errno := done.Errno(); errno != 0 {
		err = errno
	}
	if err = (*slot).Sent(max(0, int(done.Result)), err); err != nil {
		u.refused(*slot, err)
	}
}

// Received takes in what the ring has received from the endpoint of a session.
func (u *Sessions) Received(t reactor.Token, done *ring.Completion) {
	id, datagram, has := u.Buffers.Take(done)
	if slot := u.all.At(t.Index, t.Generation); slot != nil {
		f := *slot
		f.asked = done.More()
		u.heard(f, datagram, done.Errno())
		u.ask(f)
	}
	if has {
		u.Buffers.GiveBack(id)
	}
}

// heard takes in a datagram of the endpoint of f, or why there is none.
func (u *Sessions) heard(f *session, datagram []byte, errno unix.Errno) {
	switch errno {
	case 0:
		u.makeOut()
		copy(u.out.Room()[:], datagram)
		u.reply(f, len(datagram))
	case unix.ENOBUFS, unix.ENOMEM, unix.EINTR, unix.EAGAIN: // the endpoint is not to blame
	case unix.ECANCELED: // the loop is to rest
	case unix.EMSGSIZE: // an earlier one we sent was too long for the path
	default:
		u.refused(f, errno)
	}
}

// Refill has the ring receive for all sessions again after a rest.
func (u *Sessions) Refill() {
	for f := range u.all.All {
		u.join(*f)
	}
}
