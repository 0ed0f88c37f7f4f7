package portable

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
)

// A relay carries bytes between a client and a backend: a pump for each direction, each on its own
// goroutine. All of the work is in how it ends.
//
// While both sides talk, nothing limits how long they are silent. A direction ends when its source
// does, or when its destination no longer takes anything. The last column is the reason that this is
// for the relay to have ended, with the side that it names:
//
//	src ends by   dst is           then                                                 reason
//	---------------------------------------------------------------------------------------------------
//	FIN           there            the FIN is passed on; the other direction goes on    src finished
//	FIN           finished too     all is said: both are closed                         who did so first
//	RST           there            what src had sent is delivered to dst, then dst is   src reset
//	                               reset
//	no answer     there            the same (src has vanished: keepalive finds out, or  src vanished
//	                               read)
//	              gone: RST after  writing fails by EPIPE: dst had said all it wanted   dst reset
//	              its FIN          to. src gets that and the FIN; what src goes on
//	                               sending is thrown away. A client is given time to
//	                               finish; a backend is stopped by a reset as soon as
//	                               it has all of the request
//	              gone: RST        writing fails by ECONNRESET: to the other direction  dst reset
//	              without FIN      this is a source that ended by RST, and is dealt
//	                               with there; what src goes on sending is thrown away
//	                               meanwhile
//
// The first of these decides, but that one side has finished counts only as long as nothing else
// happens: that is how a relay goes well.
//
// From the first of these ends on the relay may be silent for HalfClosedTimeout: so long may nothing
// be delivered, in either direction. Then (HalfClosedTimeout is the reason), as when all is said, whoever has been sent the FIN of the
// other is closed, and whoever has not is reset: what was cut off never looks complete (v0.4 shut
// down the wrong half of each connection, and answers were lost: D39).
//
// Reading before closing is not politeness. To close a connection with input that was not read sends
// a RST, and a RST makes both kernels throw away what was on its way: the tail of an answer.
type relay struct {
	client, backend side

	patience  time.Duration // HalfClosedTimeout
	lookAfter time.Duration // how often a pump looks whether its source is still there

	pumping atomic.Int32  // pumps that have not ended
	done    chan struct{} // closed when both have
	why     atomic.Int32  // the Reason so far; undecided at first
}

// A side is one of the two connections of a relay.
type side struct {
	conn  *net.TCPConn
	ends  engine.SideEnds
	sent  atomic.Int64   // bytes written to it
	total *atomic.Uint64 // bytes written to this side of all relays of the service
	fin   atomic.Bool    // it has been sent a FIN: all that the other side said

	writing sync.Mutex // held during a write, and guards the fields below
	broken  bool       // a write failed because the connection was reset or has timed out
	closed  bool       // a write failed because the peer has closed: it had sent its FIN before
}

// newRelay makes a relay whose bytes are counted in t as they are written.
func newRelay(client, backend *net.TCPConn, cfg engine.Config, t *traffic.Tally) *relay {
	r := &relay{
		client:    side{conn: client, ends: engine.ClientEnds, total: &t.Received},
		backend:   side{conn: backend, ends: engine.BackendEnds, total: &t.Sent},
		patience:  cfg.HalfClosedTimeout,
		lookAfter: (1 + engine.Probes) * cfg.TCPKeepAlive, // as long as keepalive takes to find out
		done:      make(chan struct{}),
	}
	r.why.Store(engine.Undecided)
	return r
}

// run relays until both directions have ended, closes both connections, and tells why. When ctx ends
// it cuts them, for the reason that is its cause.
func (r *relay) run(ctx context.Context) traffic.Reason {
	var others sync.WaitGroup
	others.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer others.Done()
		r.because(balance.ReasonOf(ctx))
		reset(r.client.conn)
		reset(r.backend.conn)
	})
	r.pumping.Store(2)
	others.Go(func() { r.carry(&r.client, &r.backend) })
	r.carry(&r.backend, &r.client)
	if stop() {
		others.Done()
	}
	others.Wait()
	r.end()
	for _, s := range []*side{&r.client, &r.backend} {
		if s.closed {
			r.because(s.ends.Reset)
		}
	}
	return traffic.Reason(r.why.Load())
}

// because notes why the relay ends, if it is the first reason. That a side has finished gives way to
// any other.
func (r *relay) because(why traffic.Reason) {
	for {
		had := r.why.Load()
		decided := had != engine.Undecided && traffic.Reason(had) != traffic.ClientFinished && traffic.Reason(had) != traffic.EndpointFinished
		again := had != engine.Undecided && (why == traffic.ClientFinished || why == traffic.EndpointFinished)
		if decided || again || r.why.CompareAndSwap(had, int32(why)) {
			return
		}
	}
}

// carry pumps one direction to its end, and then keeps watch over the other.
func (r *relay) carry(dst, src *side) {
	r.pump(dst, src)
	if r.pumping.Add(-1) > 0 {
		r.watch()
	} else {
		close(r.done)
	}
}

// bufferSize is how much a pump reads at a time. In bulk, 8 KiB costs about twice the processor time
// of 32 KiB, 16 KiB a third more, 64 KiB a fifth less. It is also the most that Go's allocator has a
// size class for. What of a buffer was never used takes no memory.
const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// pump copies what src sends to dst until one of them ends, and deals with that as the table says.
// A slow dst holds up the writes, these the reads, and so in the end src: the kernel's buffers and
// one of ours are all that is held for it. So a connection whose sides both read nothing holds two
// buffers here, 64 KiB, beside two goroutines; and four in the kernel, which are bounded each by
// net.ipv4.tcp_rmem and tcp_wmem, and all together by tcp_mem (tcp(7)). With MaxConnections such
// clients that is all the memory that they can take.
func (r *relay) pump(dst, src *side) {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	src.conn.SetReadDeadline(time.Now().Add(r.lookAfter))
	for {
		n, err := r.read(src, buf[:])
		if n > 0 {
			if err := dst.write(buf[:n]); err != nil {
				if !errors.Is(err, syscall.EPIPE) {
					r.because(dst.ends.Of(err))
				}
				r.discard(src, buf[:])
				return
			}
		}
		switch {
		case err == nil:
		case err == io.EOF && src.hasFinished():
			r.because(src.ends.Finished)
			dst.finish()
			return
		default:
			if err != io.EOF { // else the other pump got the error, and knows why
				r.because(src.ends.Of(err))
			}
			r.flush(dst)
			reset(dst.conn)
			return
		}
	}
}

// errVanished is how a source ends that has gone without a word.
var errVanished = errors.New("the peer no longer answers")

// read reads what src sends next, however long that takes. Every now and then it looks whether src
// is still there, because keepalive cannot while we have sent src something that it has not
// acknowledged: then the kernel sends that again, instead of probes, for a quarter of an hour
// (tcp_retries2, tcp(7)). TCP_USER_TIMEOUT would be shorter, but would also end a peer that is well
// and just reads nothing for a while.
func (r *relay) read(src *side, buf []byte) (int, error) {
	for {
		n, err := src.conn.Read(buf)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if d := sockopt.Inspect(src.conn); d.Pending && d.Unanswered >= engine.Probes && d.Silent >= r.lookAfter {
			return 0, errVanished
		}
		src.conn.SetReadDeadline(time.Now().Add(r.lookAfter))
	}
}

// write writes to the side, and remembers what a failure says about it. The kernel says it only
// once: after a write has got ECONNRESET, a read finds a clean end where there was none. After
// EPIPE it is a true one: the peer had sent its FIN before the RST.
func (s *side) write(b []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	n, err := s.conn.Write(b)
	s.sent.Add(int64(n))
	s.total.Add(uint64(n))
	if errors.Is(err, syscall.EPIPE) {
		s.closed = true
	} else if err != nil {
		s.broken = true
	}
	return err
}

// hasFinished tells whether an EOF that was just read from the side is the end that its peer meant.
func (s *side) hasFinished() bool {
	if !s.writing.TryLock() {
		// The other pump is in a write, which may have taken the error that the EOF hides. If the
		// connection is dead the write returns at once; if not, it may wait for a slow reader for
		// ever, and there was no error.
		if !sockopt.Inspect(s.conn).Dead {
			return true
		}
		s.writing.Lock()
	}
	defer s.writing.Unlock()
	return !s.broken
}

// finish tells the side that the other one has nothing more to say. It may go on itself.
func (s *side) finish() {
	s.fin.Store(true)
	s.conn.CloseWrite() // fails when the side has gone, which its own pump sees
}

// reset ends a connection by a RST. What has not been delivered yet is lost.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0) // fails on a connection that is closed
	conn.Close()
}
