package portable

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/tcp"
)

// How a relay gets from the first of its ends to the last: it waits for what can still be delivered, but not
// for ever.

// ended does what is to be done when a read from src has found its end.
func (r *relay) ended(dst, src *side, err error) {
	if errors.Is(err, net.ErrClosed) {
		return // the relay has ended, and knows why
	}
	if err == io.EOF {
		err = nil
		src.awaitWrite()
	}
	if src.which == tcp.BackendSide {
		r.endpointEnded.Do(r.account.EndpointEnded)
	}
	r.mu.Lock()
	verdict, survivor := r.end.Ended(src.which, err), &r.client
	if r.end.Survivor() == tcp.BackendSide {
		survivor = &r.backend
	}
	r.mu.Unlock()
	switch verdict {
	case tcp.Finish:
		dst.conn.CloseWrite() // fails when the side has gone, which its own pump sees
	case tcp.Flush:
		r.flush(survivor)
		r.close()
	case tcp.End:
		r.close()
	}
}

// died handles a side that is dead while its pump waits for the other side to take what it said before: see [tcp.Teardown.Died]. It has to be called every
// now and then.
func (r *relay) died(s *side) {
	if s.which == tcp.BackendSide {
		r.endpointEnded.Do(r.account.EndpointEnded)
	}
	r.mu.Lock()
	r.end.Died()
	r.mu.Unlock()
	if r.isSilent() {
		r.close()
	}
}

// awaitWrite waits for a write to the side that is under way, if the connection is dead. The kernel reports an error of a socket once: such a
// write may get it, and the read gets an EOF in its place. On a dead connection the write returns at once. On any other it may wait for a
// slow reader for ever, and the EOF hides no error.
func (s *side) awaitWrite() {
	if !s.writing.TryLock() {
		if !sockopt.Inspect(s.conn).Dead {
			return
		}
		s.writing.Lock()
	}
	s.writing.Unlock()
}

// watch lets the relay end when, now that one direction has ended, there is silence. It returns when
// both have ended.
func (r *relay) watch() {
	tick := time.NewTicker(r.tick())
	defer tick.Stop()
	for {
		select {
		case <-r.done:
			return
		case <-tick.C:
			if r.isSilent() {
				r.close()
			}
		}
	}
}

// watchIdle ends the relay when both sides have been silent for too long. It returns when that is over, or one direction has ended.
func (r *relay) watchIdle(timeout time.Duration) {
	tick := time.NewTicker(tcp.IdleLook(timeout))
	defer tick.Stop()
	for {
		select {
		case <-r.done:
			return
		case <-tick.C:
			if r.pumping.Load() < 2 {
				return
			}
			if r.isIdle(timeout) {
				r.close()
				return
			}
		}
	}
}

// discard reads and drops what src still sends, for dst takes no more. Without it src could be stuck in its writes, and never hear what dst
// said last. If the client has finished and gone, the relay ends once the backend has the whole request.
func (r *relay) discard(dst, src *side, buf []byte) {
	for {
		if r.worksForNobody() && !sockopt.Inspect(r.backend.conn).Pending || r.isSilent() {
			r.close()
			return
		}
		src.conn.SetReadDeadline(time.Now().Add(r.tick()))
		_, err := src.conn.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
			if tcp.HasVanished(sockopt.Inspect(src.conn), r.cfg.TCPKeepAlive) {
				err = tcp.ErrVanished
			}
		}
		if err != nil {
			r.ended(dst, src, err)
			return
		}
	}
}

// flush waits until what was written to dst has been delivered, so that a reset does not destroy
// it. It gives up when there is silence. Where the kernel does not tell, it does not wait.
func (r *relay) flush(dst *side) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if d := sockopt.Inspect(dst.conn); !d.Pending || tcp.HasVanished(d, r.cfg.TCPKeepAlive) || r.isSilent() {
			return
		}
		time.Sleep(pause)
	}
}

func (r *relay) worksForNobody() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end.WorksForNobody()
}

// isSilent reports whether nothing has been delivered for too long. It has to be asked every now and then.
func (r *relay) isSilent() bool {
	delivered := r.delivered()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end.IsSilent(monotonic.Now(), delivered, r.cfg.HalfClosedTimeout)
}

// isIdle is isSilent before anything has ended.
func (r *relay) isIdle(timeout time.Duration) bool {
	delivered := r.delivered()
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.end.HasDied() && r.end.IsIdle(monotonic.Now(), delivered, timeout)
}

// delivered grows with each byte that is written, or acknowledged.
func (r *relay) delivered() uint64 {
	return uint64(r.client.sent.Load()+r.backend.sent.Load()) + sockopt.Inspect(r.client.conn).Acked + sockopt.Inspect(r.backend.conn).Acked
}

// tick is how often those who wait for a silence to last look.
func (r *relay) tick() time.Duration { return max(r.cfg.HalfClosedTimeout/16, time.Millisecond) }

// close closes both connections, if they are still open.
func (r *relay) close() {
	for _, s := range []*side{&r.client, &r.backend} {
		r.mu.Lock()
		clean := r.end.IsClean(s.which)
		r.mu.Unlock()
		if clean {
			s.conn.Close()
		} else {
			reset(s.conn)
		}
	}
}
