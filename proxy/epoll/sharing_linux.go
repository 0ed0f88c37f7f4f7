package epoll

import (
	"sync"
	"sync/atomic"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/tcp"
)

// Loops share out clients among themselves: the one that has accepted a client serves it, or hands it over to another.

// slack is how many connections more than another a loop may have before it hands clients over to that.
const slack = 2

// lightest returns the dialler for one more client: that of the loop, unless another has clearly less to carry.
func (ls *listeners) lightest() *dialler {
	lightest, least := ls.own, ls.own.conns.Assigned.Load()-slack
	for _, other := range ls.diallers {
		if n := other.conns.Assigned.Load(); n < least {
			lightest, least = other, n
		}
	}
	return lightest
}

// serve begins to see a client to an endpoint.
func (ds *dialler) serve(fd int, owner *atomic.Pointer[engine.Claim], account tcp.Connection) {
	ds.conns.Assigned.Add(1)
	ds.start(ds.conns.Begin(fd, owner, account))
}

// handOver has the loop of ds serve a client, and reports whether it will. Any goroutine may call it. The client counts from now
// on, for the next one is shared out by that.
func (ds *dialler) handOver(fd int, owner *atomic.Pointer[engine.Claim], account tcp.Connection) bool {
	p := newHandoff()
	p.to, p.fd, p.owner, p.account = ds, fd, owner, account
	ds.conns.Assigned.Add(1)
	will := ds.requests.Do(p.unpack)
	if !will {
		ds.conns.Assigned.Add(-1)
		p.recycle()
	}
	return will
}

// A handoff passes a client to another loop.
type handoff struct {
	to      *dialler
	fd      int
	owner   *atomic.Pointer[engine.Claim]
	account tcp.Connection
	unpack  func() // begin, as the other loop is asked for it
}

// handoffs is the free list of handoffs: as garbage, one would take half as much memory as the connection of its client.
var handoffs sync.Pool

func newHandoff() *handoff {
	p, ok := handoffs.Get().(*handoff)
	if !ok {
		p = new(handoff)
		p.unpack = p.begin
	}
	return p
}

// begin begins to see the client to an endpoint.
func (p *handoff) begin() {
	to, c := p.to, p.to.conns.Begin(p.fd, p.owner, p.account)
	p.recycle()
	to.start(c)
}

// recycle empties p, and keeps it for another client.
func (p *handoff) recycle() {
	*p = handoff{unpack: p.unpack}
	handoffs.Put(p)
}
