package etcdtest

import (
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Link is a TCP path to an etcd that a test can break in the two ways networks break: so that
// both ends are told, and so that neither is.
type Link struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	down   bool
	closed bool
	lanes  map[*lane]struct{}
}

// A lane is one connection through a link, with its two ends.
type lane struct {
	client, server *net.TCPConn
	deaf           atomic.Bool  // bytes are taken and thrown away
	held           sync.RWMutex // locked: bytes wait, and neither end is told anything
}

// NewLink opens a path to target, a host and port. It ends with the test.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{listener: listener, target: target, lanes: make(map[*lane]struct{})}
	l.wg.Go(l.accept)
	t.Cleanup(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		_ = listener.Close() // ends accept
		l.Cut()
		l.wg.Wait()
	})
	return l
}

// Addr is the host and port to connect to instead of the target's.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Conns tells how many connections are open.
func (l *Link) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lanes)
}

// Cut resets every open connection. New ones pass.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.lanes {
		c.reset()
	}
}

// Swallow makes every open connection carry nothing more, without a word to either end. New ones
// pass, unless the link is down.
func (l *Link) Swallow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.lanes {
		c.deaf.Store(true)
	}
}

// Down takes the link down as a firewall that drops packets does: it swallows what is open, and
// what opens later, until [Link.Up].
func (l *Link) Down() {
	l.mu.Lock()
	l.down = true
	l.mu.Unlock()
	l.Swallow()
}

// Up lets new connections pass again. Those that were swallowed stay lost.
func (l *Link) Up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// Hold has everything wait that is sent over the open connections, as if a process at one end were stopped, and swallows what opens meanwhile.
// After release, which the end of the test calls too, they go on, and new ones pass.
func (l *Link) Hold(t testing.TB) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	held := slices.Collect(maps.Keys(l.lanes))
	for _, c := range held {
		c.held.Lock()
	}
	release = sync.OnceFunc(func() {
		for _, c := range held {
			c.held.Unlock()
		}
		l.Up()
	})
	t.Cleanup(release) // before that of the link, which waits for all lanes
	return release
}

func (l *Link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return // closed at the end of the test
		}
		l.wg.Go(func() { l.carry(conn.(*net.TCPConn)) })
	}
}

func (l *Link) carry(client *net.TCPConn) {
	server, err := net.DialTimeout("tcp", l.target, 10*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close() // refused, as the target did
		return
	}
	c := &lane{client: client, server: server.(*net.TCPConn)}
	l.mu.Lock()
	c.deaf.Store(l.down)
	l.lanes[c] = struct{}{}
	if l.closed {
		c.reset()
	}
	l.mu.Unlock()

	var pumps sync.WaitGroup
	pumps.Go(func() { c.pump(c.server, c.client) })
	pumps.Go(func() { c.pump(c.client, c.server) })
	pumps.Wait()
	l.mu.Lock()
	delete(l.lanes, c)
	l.mu.Unlock()
}

// pump copies until either side ends, and then ends both. A deaf lane reads on and says nothing,
// not even that one side has ended: the other may wait.
func (c *lane) pump(dst, src *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if c.deaf.Load() {
			if err != nil {
				_ = src.Close()
				return
			}
			continue
		}
		c.held.RLock()
		_, werr := dst.Write(buf[:n])
		c.held.RUnlock()
		if err == nil && werr != nil && dst == c.server {
			return // it is gone, but its last words must still arrive: the other direction ends both
		}
		if err != nil || werr != nil {
			_ = src.Close()
			_ = dst.Close()
			return
		}
	}
}

func (c *lane) reset() {
	_ = c.client.SetLinger(0)
	_ = c.server.SetLinger(0)
	_ = c.client.Close()
	_ = c.server.Close()
}
