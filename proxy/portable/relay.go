package portable

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
)

// newRelay makes a relay of the client of this account. Its bytes are counted in t as they are written.
func newRelay(client, backend *net.TCPConn, cfg *engine.Config, t *traffic.Tally, account *tcp.Connection) *relay {
	return &relay{
		client:  side{which: tcp.ClientSide, conn: client, total: &t.Received},
		backend: side{which: tcp.BackendSide, conn: backend, total: &t.Sent},
		cfg:     cfg,
		account: account,
		done:    make(chan struct{}),
	}
}

// run relays until both directions have ended, closes both connections, and tells why. When ctx ends
// it cuts them, for the reason that is its cause.
func (r *relay) run(ctx context.Context) traffic.Reason {
	var others sync.WaitGroup
	others.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer others.Done()
		r.cut(removal.ReasonOf(ctx))
	})
	r.pumping.Store(2)
	if idle := r.cfg.IdleTimeoutOf(r.account.Claim.Terms); idle > 0 {
		others.Go(func() { r.watchIdle(idle) })
	}
	others.Go(func() { r.carry(&r.client, &r.backend) })
	r.carry(&r.backend, &r.client)
	if stop() {
		others.Done()
	}
	others.Wait()
	r.close()
	return r.end.Reason()
}

// cut ends both directions at once. Any goroutine may call it.
func (r *relay) cut(why traffic.Reason) {
	r.mu.Lock()
	r.end.Because(why)
	r.mu.Unlock()
	reset(r.client.conn)
	reset(r.backend.conn)
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

// pump copies what src sends to dst until one of them ends.
// A slow dst blocks our writes. While a pump writes it does not read, so src is slowed down too: the kernel's buffers and
// one of ours are all that is held for it. So a connection whose sides both read nothing holds two
// buffers here, 64 KiB, beside two goroutines; and four in the kernel, which are bounded each by
// net.ipv4.tcp_rmem and tcp_wmem, and all together by tcp_mem (tcp(7)). With MaxConnections such
// clients that is all the memory that they can take.
func (r *relay) pump(dst, src *side) {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	src.conn.SetReadDeadline(r.nextLook())
	dst.conn.SetWriteDeadline(r.nextLook())
	if r.announce(dst) != nil {
		r.discard(dst, src, buf[:])
		return
	}
	for {
		n, err := r.read(dst, src, buf[:])
		if n > 0 && r.write(dst, buf[:n]) != nil {
			r.discard(dst, src, buf[:])
			return
		}
		if err != nil {
			r.ended(dst, src, err)
			return
		}
	}
}

// read reads what src sends next, however long that takes. Every now and then it looks whether src
// is still there. So it does for the other side, whose pump may be in a write that src does not take.
func (r *relay) read(dst, src *side, buf []byte) (int, error) {
	for {
		n, err := src.conn.Read(buf)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if tcp.HasVanished(sockopt.Inspect(src.conn), r.cfg.TCPKeepAlive) {
			return 0, tcp.ErrVanished
		}
		if r.pumping.Load() == 2 && sockopt.Inspect(dst.conn).Dead {
			r.died(dst)
		}
		src.conn.SetReadDeadline(r.nextLook())
	}
}

// nextLook is when to look whether a side is still there that has been waited for until then.
func (r *relay) nextLook() time.Time { return time.Now().Add(tcp.LookAfter(r.cfg.TCPKeepAlive)) }

// announce writes what a side gets before the next byte of the other side.
func (r *relay) announce(dst *side) error {
	first := append(dst.header, dst.said...)
	if len(first) == 0 {
		return nil
	}
	n, err := r.writeUncounted(dst, first)
	dst.count(max(0, n-len(dst.header)))
	return err
}

// write writes to dst what the other side has sent.
func (r *relay) write(dst *side, b []byte) error {
	n, err := r.writeUncounted(dst, b)
	dst.count(n)
	return err
}

// count notes that n bytes of the other side were written.
func (s *side) count(n int) {
	s.sent.Add(int64(n))
	s.total.Add(uint64(n))
}

// writeUncounted writes to dst, however long that takes, and notes what a failure says about it: the kernel says it only once. Every now and
// then it looks whether dst is still there, whose own pump may be in a write as well.
func (r *relay) writeUncounted(dst *side, b []byte) (int, error) {
	dst.writing.Lock()
	defer dst.writing.Unlock()
	n, err := dst.conn.Write(b)
	for errors.Is(err, os.ErrDeadlineExceeded) {
		if tcp.HasVanished(sockopt.Inspect(dst.conn), r.cfg.TCPKeepAlive) {
			err = tcp.ErrVanished
			break
		}
		dst.conn.SetWriteDeadline(r.nextLook())
		var more int
		more, err = dst.conn.Write(b[n:])
		n += more
	}
	if err != nil && !errors.Is(err, net.ErrClosed) { // else the relay has ended, and knows why
		r.mu.Lock()
		defer r.mu.Unlock()
		r.end.Unwritable(dst.which, err)
	}
	return n, err
}
