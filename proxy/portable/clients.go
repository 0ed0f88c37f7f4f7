package portable

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
)

// A roll is the connections and sessions of an engine, each in a place of its own, so that others can look at a few at a time.
type roll struct {
	mu     sync.Mutex // guards the fields below
	places []live     // nil where none is, or one that ends soon
	free   []int
}

// A live connection or session is known by the roll from its beginning to its end.
type live interface {
	now() traffic.Client      // as it is; it may have ended just now
	describe(*traffic.Client) // adds what the kernel says of its sockets
	stop(why traffic.Reason)  // ends it soon
}

// add gives l a place.
func (r *roll) add(l live) (place int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		place, r.free = r.free[n-1], r.free[:n-1]
		r.places[place] = l
		return place
	}
	r.places = append(r.places, l)
	return len(r.places) - 1
}

// remove frees a place.
func (r *roll) remove(place int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places[place] = nil
	r.free = append(r.free, place)
}

// placesAStep is how many places one step looks at.
const placesAStep = 256

// some returns what is in a few places, with nil where nothing is, and the next place; negative: there is none.
func (r *roll) some(from int) (some []live, next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := min(from+placesAStep, len(r.places))
	some = slices.Clone(r.places[min(from, to):to])
	if to == len(r.places) {
		return some, -1
	}
	return some, int64(to)
}

// hide keeps l from being looked at again. It keeps its place until remove.
func (r *roll) hide(place int, l live) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.places[place] == l { // else it has ended, and the place may be another's
		r.places[place] = nil
	}
}

// Clients passes the clients in a few places to each. One that is to end is not passed again, though its end takes a moment.
func (e *Engine) Clients(from int64, of *traffic.Selection, each func(*traffic.Client) (end bool)) (next int64) {
	some, next := e.roll.some(int(from))
	for i, l := range some {
		if l == nil {
			continue
		}
		now := l.now()
		if !of.Has(&now) {
			continue
		}
		l.describe(&now)
		if each(&now) {
			e.roll.hide(int(from)+i, l)
			l.stop(traffic.Killed)
		}
	}
	return next
}

// A connection is what the roll knows of a TCP client.
type connection struct {
	conn *net.TCPConn

	mu      sync.Mutex // guards the fields below
	account traffic.Client
	began   time.Time
	relay   *relay             // nil until it has an endpoint
	callOff context.CancelFunc // of the search for one; nil before that
	killed  bool
}

// looks notes that a search for an endpoint begins, and how to call it off.
func (c *connection) looks(callOff context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.callOff = callOff; c.killed {
		callOff()
	}
}

// isKilled reports whether the client was ended.
func (c *connection) isKilled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// become notes who the client is from now on: its PROXY header has named it, or its port has another owner.
func (c *connection) become(account traffic.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.account = account
}

// relayed notes that the client has its endpoint, and reports whether it may go on with it.
func (c *connection) relayed(account traffic.Client, r *relay) (goOn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.account, c.relay = account, r
	return !c.killed
}

func (c *connection) now() traffic.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.account
	now.Age = time.Since(c.began)
	if c.relay != nil {
		now.Sent, now.Received = uint64(c.relay.backend.sent.Load()), uint64(c.relay.client.sent.Load())
	}
	return now
}

func (c *connection) describe(now *traffic.Client) {
	c.mu.Lock()
	r := c.relay
	c.mu.Unlock()
	now.ClientState, now.Idle = sockopt.StateOfConn(c.conn)
	if r != nil {
		state, idle := sockopt.StateOfConn(r.backend.conn)
		now.EndpointState, now.Idle = state, min(now.Idle, idle)
		now.Local = r.backend.conn.LocalAddr().(*net.TCPAddr).AddrPort()
	}
}

// aLongTimeAgo as a deadline ends a wait at once.
var aLongTimeAgo = time.Unix(1, 0)

// stop ends the connection, also while its header is awaited, or an endpoint is looked for.
func (c *connection) stop(why traffic.Reason) {
	c.mu.Lock()
	r, callOff := c.relay, c.callOff
	c.killed = true
	c.mu.Unlock()
	switch {
	case r != nil:
		r.cut(why)
	case callOff != nil:
		callOff()
	default:
		c.conn.SetReadDeadline(aLongTimeAgo) // see readHeader; fails on a connection that is closed
	}
}

// now is what the roll asks a session for.
func (s *session) now() traffic.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Now()
}

func (s *session) describe(now *traffic.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.backend; b != nil {
		now.Local = b.conn.LocalAddr().(*net.UDPAddr).AddrPort()
		now.Local = netip.AddrPortFrom(now.Local.Addr().Unmap(), now.Local.Port())
	}
}
