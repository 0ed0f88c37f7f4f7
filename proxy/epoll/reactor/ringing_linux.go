package reactor

import (
	"time"

	"kubeproxy/proxy/epoll/ring"
)

// A ringing is the ring of a poller, if it has one. All that a loop asks of the ring goes through here, so that it is known what is under way.
type ringing struct {
	ring        *ring.Ring
	polled      bool // the ring tells once there are events
	completions []ring.Completion
	completed   int  // of them, in the last wait or poll
	underWay    int  // receives and sends
	leaving     bool // no more receives begin, for the loop is to rest
}

// IsOpen reports whether there is a ring, and receives may begin. Without, none of the methods below but Leave, Empty and Refill may be called.
func (r *ringing) IsOpen() bool { return r.ring != nil && !r.leaving }

// Receive is [ring.Ring.Receive].
func (r *ringing) Receive(fd int, b *ring.Buffers, late bool, t Token) {
	r.underWay++
	r.ring.Receive(fd, b, late, t.Data())
}

// Send is [ring.Ring.Send].
func (r *ringing) Send(fd int, b []byte, t Token) {
	r.underWay++
	r.ring.Send(fd, b, t.Data())
}

// CancelReceive ends the receive that has a token. It completes as [ring.Ring.Cancel] says.
func (r *ringing) CancelReceive(t Token) { r.ring.Cancel(t.Data(), silent.Data()) }

// CloseLater closes a descriptor at the end of the turn, after what was asked for before. Until then it is no other's. If a receive is under
// way for it, receives is true and t its token: the receive ends, for it would keep the socket open.
func (r *ringing) CloseLater(fd int, receives bool, t Token) {
	if receives {
		r.CancelReceive(t)
	}
	r.ring.CloseDescriptor(fd, silent.Data())
}

// silent is the token of what completes only if it fails, and then to no purpose.
var silent = Token{Kind: polling, Index: 1}

// Submit has the kernel take what was asked for. Bytes that are to be sent must not change before.
func (r *ringing) Submit() {
	if r.ring != nil && r.ring.Unsubmitted() > 0 {
		r.ring.Submit()
	}
}

// Completions are those of the last wait or poll.
func (r *ringing) Completions() []ring.Completion { return r.completions[:r.completed] }

// Leave lets no receive begin until Refill. Who has some under way cancels them then, each by its token.
func (r *ringing) Leave() { r.leaving = r.ring != nil }

// Empty reports whether nothing is under way any more, and all that was asked for is done. It is to be called again in a later turn until that is so.
// What has been received by then completes as usual. What is left when a turn brings nothing, as a receive that was about to wait when it was
// to be cancelled, is cancelled with all others: for n of them that takes the kernel n² steps.
func (r *ringing) Empty() bool {
	if r.underWay > 0 {
		if r.completed == 0 {
			r.ring.CancelAll(Token{Kind: polling}.Data())
		}
		return false
	}
	r.Submit()
	return true
}

// Refill lets receives begin again.
func (r *ringing) Refill() { r.leaving = false }

// poll has the ring tell once there are events in an epoll descriptor.
func (r *ringing) poll(epfd int) {
	if !r.polled {
		r.ring.Poll(epfd, Token{Kind: polling}.Data())
		r.polled = true
	}
}

// wait submits what was asked for, waits as [ring.Ring.Wait] does, and takes the completions.
func (r *ringing) wait(atMost time.Duration, told bool) {
	r.ring.Wait(atMost, told)
	all := r.completions[:r.ring.Completions(r.completions)]
	r.completed = 0
	for i := range all {
		if t := TokenOfData(all[i].Data); t.Kind == polling {
			r.polled = r.polled && t == silent
			continue
		}
		r.underWay--
		r.completions[r.completed] = all[i]
		r.completed++
	}
}
