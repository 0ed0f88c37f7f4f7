package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/internal/freeport"
)

// A faultProxy is the TCP path from the proxy under test to one member, through one address. It breaks
// connections in the ways in which networks do: so that both ends are told (cut, refuse), or so that
// neither is (swallow, hold).
//
// What a fault proxy takes it acknowledges, even if it throws it away. That is a middlebox which has
// forgotten a connection, or a peer whose kernel lives and whose process does not read: a client sees
// its bytes accepted, and no answer. Where the packets themselves are lost nothing is acknowledged, and
// the kernel of the client retransmits and may at last give up: see drop.go.
//
// Bytes that were swallowed are gone, so what comes after them would make no sense to either end: a
// connection that has lost some stays silent until one end gives it up. Restoring a fault proxy is for
// new connections.
type faultProxy struct {
	addr string // host and port; the same for as long as the fault proxy lives
	wg   sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	listener *net.TCPListener
	target   string
	mode     mode // what becomes of new connections
	delay    time.Duration
	lanes    map[*lane]struct{}
	closed   bool
}

// A mode says what becomes of the bytes of a connection.
type mode struct{ toMember, toProxy fate }

// A fate is what becomes of the bytes that go one way.
type fate int32

const (
	carried   fate = iota
	swallowed      // taken and thrown away
	held           // they wait; the sender is stopped by its window when enough of them do
)

var (
	sound     = mode{}
	deaf      = mode{swallowed, swallowed} // nothing arrives anywhere
	mute      = mode{carried, swallowed}   // the member hears the proxy; the proxy hears nothing
	unheard   = mode{swallowed, carried}   // the member says what it has to say, and hears nothing
	suspended = mode{held, held}
)

// newFaultProxy opens a path to target, a host and port, at an address of its own.
func newFaultProxy(target string) (*faultProxy, error) {
	port, err := freeport.Find(lowPort, highPort, 1)
	if err != nil {
		return nil, err
	}
	b := &faultProxy{addr: fmt.Sprintf("127.0.0.1:%d", port), target: target, lanes: make(map[*lane]struct{})}
	return b, b.listen()
}

// all is the choice of every connection, watches of those that carry a watch, crippled of those that have
// lost bytes: they stand, and may even go on carrying something one way, until an end gives them up.
func all(*lane) bool        { return true }
func watches(l *lane) bool  { return l.watches.Load() }
func others(l *lane) bool   { return !l.watches.Load() }
func crippled(l *lane) bool { return l.toMember.lossy() || l.toProxy.lossy() }

// cut resets the chosen connections. New ones pass.
func (b *faultProxy) cut(chosen func(*lane) bool) (n int) {
	return b.each(chosen, func(l *lane) { l.reset() })
}

// set changes what becomes of the chosen connections that are open.
func (b *faultProxy) set(chosen func(*lane) bool, m mode) (n int) {
	return b.each(chosen, func(l *lane) {
		l.toMember.set(m.toMember)
		l.toProxy.set(m.toProxy)
	})
}

// setNew changes what becomes of connections that are opened from now on.
func (b *faultProxy) setNew(m mode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = m
}

// slow delays everything that the member says by d for each piece of it.
func (b *faultProxy) slow(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delay = d
	for l := range b.lanes {
		l.delay.Store(int64(d))
	}
}

// redirect sends new connections to another target, and resets those that are open.
func (b *faultProxy) redirect(target string) {
	b.mu.Lock()
	b.target = target
	b.mu.Unlock()
	b.cut(all)
}

// refuse resets every connection and closes the address, as if nobody had ever listened there.
func (b *faultProxy) refuse() {
	b.mu.Lock()
	listener := b.listener
	b.listener = nil
	b.mu.Unlock()
	if listener != nil {
		_ = listener.Close() // ends accept
	}
	b.cut(all)
}

// restore has new connections pass again, at once. Those that are held go on; those that have lost
// bytes stay lost.
func (b *faultProxy) restore() error {
	b.setNew(sound)
	b.slow(0)
	b.each(all, func(l *lane) {
		l.toMember.release()
		l.toProxy.release()
	})
	return b.listen()
}

// close ends every connection and waits until nothing of the fault proxy is left. It may be called again.
func (b *faultProxy) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.refuse()
	b.wg.Wait()
}

// conns tells how many of the chosen connections are open.
func (b *faultProxy) conns(chosen func(*lane) bool) int { return b.each(chosen, func(*lane) {}) }

func (b *faultProxy) each(chosen func(*lane) bool, do func(*lane)) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.lanes {
		if chosen(l) {
			do(l)
			n++
		}
	}
	return n
}

// listen opens the address unless it is open.
func (b *faultProxy) listen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener != nil || b.closed {
		return nil
	}
	listener, err := net.Listen("tcp", b.addr)
	if err != nil {
		return fmt.Errorf("fault proxy: %w", err)
	}
	b.listener = listener.(*net.TCPListener)
	b.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // refused or closed
			}
			b.wg.Go(func() { b.carry(client.(*net.TCPConn)) })
		}
	})
	return nil
}

// carry carries one connection until both ends are done with it.
func (b *faultProxy) carry(client *net.TCPConn) {
	b.mu.Lock()
	target, m, delay := b.target, b.mode, b.delay
	b.mu.Unlock()
	member, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close() // refused, as the target did
		return
	}
	l := newLane(client, member.(*net.TCPConn), m)
	l.delay.Store(int64(delay))
	b.mu.Lock()
	// What has changed meanwhile counts for this one too.
	if b.listener == nil || b.target != target {
		l.reset()
	}
	if b.mode != m {
		l.toMember.set(b.mode.toMember)
		l.toProxy.set(b.mode.toProxy)
	}
	b.lanes[l] = struct{}{}
	b.mu.Unlock()

	l.carry()
	b.mu.Lock()
	delete(b.lanes, l)
	b.mu.Unlock()
}

// A lane is one connection through a fault proxy, with its two ends.
type lane struct {
	client, member    *net.TCPConn
	toMember, toProxy valve
	delay             atomic.Int64 // before each piece to the proxy
	watches           atomic.Bool  // a watch was opened on it

	// The source opens a connection for each watch, and lists and probes over others. So whatever is
	// done to a lane that watches is done to the watch alone. Order or age would not tell them apart:
	// with users, each begins with a login.
}

func newLane(client, member *net.TCPConn, m mode) *lane {
	l := &lane{client: client, member: member}
	for v, f := range map[*valve]fate{&l.toMember: m.toMember, &l.toProxy: m.toProxy} {
		v.moved = sync.NewCond(&v.mu)
		v.fate = f
	}
	return l
}

func (l *lane) carry() {
	sent, heard := io.Pipe()
	var pumps sync.WaitGroup
	pumps.Go(func() {
		hearCalls(sent, func(method string) {
			if method == watchMethod {
				l.watches.Store(true)
			}
		})
		sent.Close() // nobody listens to the rest
	})
	pumps.Go(func() {
		l.pump(l.member, l.client, &l.toMember, &l.toProxy, func(p []byte) {
			_, _ = heard.Write(p)   // unless nobody listens any more
			_, _ = heard.Write(nil) // returns at the next Read: what was read has been understood
		})
		heard.Close()
	})
	pumps.Go(func() {
		l.pump(l.client, l.member, &l.toProxy, &l.toMember, func([]byte) { time.Sleep(time.Duration(l.delay.Load())) })
	})
	pumps.Wait()
}

// pump copies until either end is done, and then ends both. But where bytes are swallowed, so is the
// news that an end is done: the other may wait.
func (l *lane) pump(dst, src *net.TCPConn, there, back *valve, seen func([]byte)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		seen(buf[:n])
		switch passed := there.pass(); {
		case !passed && err != nil:
			_ = src.Close()
			return
		case !passed:
			continue
		}
		_, werr := dst.Write(buf[:n])
		switch {
		case err != nil:
			l.end()
			return
		case werr != nil && !back.pass():
			there.set(swallowed)
		case werr != nil:
			l.end()
			return
		}
	}
}

// end closes both ends.
func (l *lane) end() {
	_ = l.client.Close()
	_ = l.member.Close()
	l.toMember.release()
	l.toProxy.release()
}

func (l *lane) reset() {
	_ = l.client.SetLinger(0)
	_ = l.member.SetLinger(0)
	l.end()
}

// A valve decides the fate of the bytes that go one way.
type valve struct {
	mu    sync.Mutex // guards fate
	moved *sync.Cond // fate has changed
	fate  fate
}

// set changes the fate of what comes next. What has lost bytes is never carried again.
func (v *valve) set(f fate) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fate != swallowed {
		v.fate = f
		v.moved.Broadcast()
	}
}

// lossy tells whether bytes were lost on their way.
func (v *valve) lossy() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fate == swallowed
}

// release has what is held go on.
func (v *valve) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fate == held {
		v.fate = carried
		v.moved.Broadcast()
	}
}

// pass waits while bytes are held, and tells whether they are carried.
func (v *valve) pass() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.fate == held {
		v.moved.Wait()
	}
	return v.fate == carried
}
