package relay

import (
	"sync/atomic"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
)

// A Conn is one connection of a client, from its acceptance to its end: once an endpoint was found for it, it has a
// backend. It is what an idle client costs, so it is small, and has no buffer.
type Conn struct {
	client, backend side
	Owner           *atomic.Pointer[engine.Claim] // of the port that the client came to
	Account         tcp.Connection

	timer timer[Conn] // when it is looked at next

	end tcp.Teardown // which says what is done about its end

	index      int32
	generation uint32
	live       bool
	queued     bool   // it is in the backlog
	leaving    bool   // it is to move to another loop
	headed     bool   // the backend was sent the PROXY header, or it stands first in what is held for it
	lending    uint16 // in which it was last lent to a successor; 0: in none
	phase      Phase
	looks      uint8 // how often it has been looked at in this phase
}

// Timer links c to others that wait: see [wheel].
func (c *Conn) Timer() *timer[Conn] { return &c.timer }

// Token is what events of a side bear: kind is [ClientSide] or [BackendSide].
func (c *Conn) Token(kind reactor.Kind) reactor.Token {
	return reactor.Token{Kind: kind, Index: c.index, Generation: c.generation}
}

// ends returns the side that a kind of token is about, and the other.
func (c *Conn) ends(k reactor.Kind) (it, other *side) {
	if k == ClientSide {
		return &c.client, &c.backend
	}
	return &c.backend, &c.client
}

// tokenOf is what events of side s bear.
func (c *Conn) tokenOf(s *side) reactor.Token {
	if s.which == tcp.ClientSide {
		return c.Token(ClientSide)
	}
	return c.Token(BackendSide)
}

// What events of connections are about. Those from OtherKinds on are for what else a loop carries.
const (
	_ reactor.Kind = iota // reactor.Waker
	ClientSide
	BackendSide
	sent // the ring has sent something
	OtherKinds
)

// Index is the place of c among the connections of its loop. It is another's once c has ended.
func (c *Conn) Index() int32 { return c.index }

// Because notes why c ends, unless it is known already, and returns the reason that counts.
func (c *Conn) Because(why traffic.Reason) traffic.Reason {
	c.end.Because(why)
	return c.end.Reason()
}

// ClientSocket is the descriptor of the client.
func (c *Conn) ClientSocket() int { return int(c.client.fd) }

// HoldsEarly reports whether something that the client said is held for the backend already.
func (c *Conn) HoldsEarly() bool { return c.backend.held != nil }

// A Phase says what a [Conn] is looked at for when its timer ends.
type Phase uint8

// The phases of a connection, in their order. In the first two, it has no endpoint yet.
const (
	noPhase        Phase = iota
	AwaitingHeader       // its PROXY header is awaited
	Dialling             // it looks for an endpoint
	Young                // it is being relayed, but not for long yet
	settled              // it has been for longer
	flushing             // one side is broken, and the other is still to get what it said
	finishing            // a direction has ended in another way
)

// Phase is the one that c is in.
func (c *Conn) Phase() Phase { return c.phase }

// IsRelayed reports whether c has its endpoint.
func (c *Conn) IsRelayed() bool { return c.phase > Dialling }

// IsBusy reports whether c carries in bulk, or a side of it has stalled: its events are dealt with after those that cost little.
func (c *Conn) IsBusy() bool { return c.client.isBusy() || c.backend.isBusy() }

// Conns are the connections of a loop, and when each is looked at next.
type Conns struct {
	reactor.Slab[Conn]
	engine   *engine.Base
	turn     *reactor.Turn
	timers   wheel[Conn, *Conn]
	Assigned atomic.Int64 // how many there are, and will have been handed over, for other loops to see
}

// Init gives cs, which are new, those that they stand on.
func (cs *Conns) Init(base *engine.Base, t *reactor.Turn) {
	cs.engine, cs.turn = base, t
	cs.timers.Init()
}

// Begin makes the connection of a client that was accepted. It is counted in Assigned already.
func (cs *Conns) Begin(fd int, owner *atomic.Pointer[engine.Claim], account tcp.Connection) *Conn {
	c, index, generation := cs.Add()
	*c = Conn{
		client:     side{which: tcp.ClientSide, fd: int32(fd), open: true, readable: true}, // it may have said something by now
		backend:    side{which: tcp.BackendSide, fd: socket.None},
		Owner:      owner,
		Account:    account,
		index:      index,
		generation: generation,
		live:       true,
	}
	return c
}

// free gives back the place and the descriptors of c, whose sides are closed and whose account is closed.
func (cs *Conns) free(c *Conn) {
	cs.remove(c)
	cs.engine.Budget.Release(2)
}

// remove gives back the place of c.
func (cs *Conns) remove(c *Conn) {
	cs.Enter(c, noPhase)
	c.Account = tcp.Connection{}
	c.live = false
	cs.Remove(c.index)
	cs.Assigned.Add(-1)
}

// Enter moves c to a phase, and sets its timer for the first look.
func (cs *Conns) Enter(c *Conn, p Phase) {
	c.phase, c.looks = p, 0
	if p == noPhase {
		cs.timers.Stop(c)
	} else {
		cs.timers.Set(c, cs.turn.Now, cs.turn.Now+cs.lookEvery(c))
	}
}

// lookAgain sets the timer of c for the next look in its phase.
func (cs *Conns) lookAgain(c *Conn) {
	c.looks = min(c.looks+1, 16)
	cs.timers.Set(c, cs.turn.Now, cs.turn.Now+cs.lookEvery(c))
}

// LookAt sets the timer of c, which looks for an endpoint, for a look at a time, but dialTick from now at the earliest.
func (cs *Conns) LookAt(c *Conn, at time.Duration) {
	cs.timers.Set(c, cs.turn.Now, max(at, cs.turn.Now+dialTick))
}

// Due is when Next has something to do; monotonic.Never when no timer is set.
func (cs *Conns) Due() time.Duration { return cs.timers.Wake() }

// Next takes a connection whose time may have come, and reports whether it has: it is to be looked at then. It returns nil when there is
// none for now.
func (cs *Conns) Next() (c *Conn, isDue bool) { return cs.timers.Next(cs.turn.Now) }

// How soon a client that looks for an endpoint is looked at first, and the shortest time between two looks; how long a
// connection counts as Young; how soon one that flushes is looked at first, and how
// long it waits at most between two looks: each wait is twice the one before.
const (
	dialTick   = 20 * time.Millisecond
	youth      = time.Second
	flushFirst = 5 * time.Millisecond
	flushLast  = time.Second
)

// lookEvery is how long c waits for its next look.
func (cs *Conns) lookEvery(c *Conn) time.Duration {
	switch c.phase {
	case AwaitingHeader:
		return tcp.HeaderTimeout
	case Dialling:
		return dialTick
	case Young:
		return min(youth, cs.idleLook(c))
	case flushing:
		return min(flushFirst<<min(c.looks, 16), flushLast)
	case finishing:
		return max(min(cs.engine.Cfg.HalfClosedTimeout/16, tcp.LookAfter(cs.engine.Cfg.TCPKeepAlive)), time.Millisecond)
	}
	return min(tcp.LookAfter(cs.engine.Cfg.TCPKeepAlive), cs.idleLook(c))
}

// idleLook is how long c may wait for its next look if it ends after some silence.
func (cs *Conns) idleLook(c *Conn) time.Duration {
	if idle := cs.engine.Cfg.IdleTimeoutOf(c.Account.Claim.Terms); idle > 0 {
		return tcp.IdleLook(idle)
	}
	return monotonic.Never
}

// Describe adds what the kernel says of the sockets of c.
func (c *Conn) Describe(now *traffic.Client) {
	var ofClient, ofBackend time.Duration
	now.ClientState, ofClient = sockopt.StateOf(int(c.client.fd))
	now.Idle = ofClient
	if c.backend.open {
		now.EndpointState, ofBackend = sockopt.StateOf(int(c.backend.fd))
		now.Idle = min(ofClient, ofBackend)
		now.Local = socket.LocalName(int(c.backend.fd))
	}
}
