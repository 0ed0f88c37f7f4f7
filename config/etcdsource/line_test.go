package etcdsource_test

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// A line is the network between the source and etcd: a TCP relay that can be cut, closed to
// new connections, and held up.
// Its address stays the same whatever happens to the etcd behind it.
type line struct {
	listener net.Listener
	to       string
	carriers sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	refusing bool       // new connections are closed at once
	calls    map[*call]struct{}
}

// A call is one connection of the source, and the one to etcd that carries it on.
type call struct {
	client, server net.Conn
	held           sync.RWMutex // locked: bytes wait, and neither side is told anything
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{listener: listener, to: to, calls: make(map[*call]struct{})}
	l.carriers.Go(l.accept)
	t.Cleanup(func() {
		l.listener.Close()
		l.refuse()
		l.cut()
		l.carriers.Wait()
	})
	return l
}

func (l *line) url() string { return "http://" + l.listener.Addr().String() }

func (l *line) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.carriers.Go(func() { l.carry(client) })
	}
}

func (l *line) carry(client net.Conn) {
	server, err := net.Dial("tcp", l.to)
	if err != nil {
		client.Close()
		return
	}
	c := &call{client: client, server: server}
	l.mu.Lock()
	if l.refusing {
		c.cut()
	} else {
		l.calls[c] = struct{}{}
	}
	l.mu.Unlock()

	var pumps sync.WaitGroup
	pumps.Go(func() { c.pump(server, client) })
	pumps.Go(func() { c.pump(client, server) })
	pumps.Wait()
	l.mu.Lock()
	delete(l.calls, c)
	l.mu.Unlock()
}

// pump copies one direction. When it ends, so does the call, but for one case: an etcd that does not
// listen any more may have died, and what it said before still goes through.
func (c *call) pump(dst, src net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		c.held.RLock()
		_, werr := dst.Write(buf[:n])
		c.held.RUnlock()
		switch {
		case err == nil && werr == nil:
		case err == nil && dst == c.server:
			return
		default:
			c.cut()
			return
		}
	}
}

func (c *call) cut() {
	c.client.Close()
	c.server.Close()
}

// cut breaks every connection; the source may call again at once.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.calls {
		c.cut()
	}
}

// refuse lets no new connection through until open. Those that exist go on.
func (l *line) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = true
}

func (l *line) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = false
}

// hold stops some of the connections, chosen at random, or (without r) all of them, and neither side is
// told: what was sent arrives once they are released. So a watch can fall behind a list, or a list
// behind a watch.
func (l *line) hold(r *rand.Rand) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var held []*call
	for c := range l.calls {
		if r == nil || r.IntN(3) > 0 {
			c.held.Lock()
			held = append(held, c)
		}
	}
	return func() {
		for _, c := range held {
			c.held.Unlock()
		}
	}
}
