package epoll

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/tcp"
	"kubeproxy/registry"
)

// Listeners are the TCP ports of a loop. They accept clients, and hand them to a dialler: that of the loop, or of
// one that has less to carry.
type listeners struct {
	engine   *engine.Base
	turn     *reactor.Turn
	poller   *reactor.Poller
	requests *reactor.Requests
	pauses   *reactor.Pauses
	atLimit  *reactor.Pauses // of ports whose clients wait at a limit
	own      *dialler        // of the loop
	diallers []*dialler      // of all loops
	all      reactor.Slab[*epollTCP]
	accepts  int // how many clients each port may accept in this turn
}

// An epollTCP is one open TCP port of the epoll engine.
type epollTCP struct {
	reactor.Watched
	listeners *listeners // that it is one of
	number    uint16
	queue     tcp.Queue
	owner     *atomic.Pointer[engine.Claim]

	ready <-chan struct{} // closed when the loop has begun to watch it
	err   error           // why that failed; to be read after ready
}

// listening is the kind of events which tell that a port has clients.
const listening = relay.OtherKinds

// open opens the socket of a port. Package net opens it, as it knows best how to serve both
// families; what it would do with it afterwards we do ourselves. Any goroutine may call it.
func (ls *listeners) open(id registry.ListenerID, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	fd, err := socket.ListenTCP(ls.engine, id)
	if err != nil {
		return nil, err
	}
	p := &epollTCP{listeners: ls, Watched: reactor.Watched{FD: fd}, number: id.Number, owner: owner}
	p.ready, _ = ls.requests.Begin(func() {
		slot, index, generation := ls.all.Add()
		*slot = p
		p.Token = reactor.Token{Kind: listening, Index: index, Generation: generation}
		p.err = ls.poller.Watch(fd, p.Token, unix.EPOLLIN)
	})
	return p, nil
}

// Ready waits until the loop watches the socket.
func (p *epollTCP) Ready() error {
	<-p.ready
	p.ready = reactor.Done // there are tens of thousands of ports
	if p.err != nil {
		p.Close()
	}
	return p.err
}

// OwnerChanged does nothing: TCP connections outlive the claim they began under.
func (p *epollTCP) OwnerChanged() {}

// Descriptor returns the listening socket.
func (p *epollTCP) Descriptor() (int, error) { return p.FD, nil }

// Close returns when the port is free. The kernel resets the clients in its queue.
func (p *epollTCP) Close() {
	p.listeners.requests.Call(p.leave)
	p.listeners.engine.Budget.ReleaseOfListener()
}

// Drain closes the port: connections go on.
func (p *epollTCP) Drain() { p.Close() }

func (p *epollTCP) leave() {
	p.listeners.poller.Unwatch(p.FD) // closing it does not end that if another process has the socket too
	socket.Close(p.FD)
	p.listeners.all.Remove(p.Token.Index)
	p.Forget()
}

// How many clients one port accepts in a turn, and all ports together. With more than 64 ports each still accepts one. Further clients wait
// for the next turn, and connections are served in between.
const (
	acceptsAtOnce = 8
	acceptsATurn  = 64
)

// acceptsFor is how many clients each of so many ports may accept in a turn.
func acceptsFor(ports int) int { return min(acceptsAtOnce, max(1, acceptsATurn/max(1, ports))) }

// accept accepts clients. It is called on an event of the listening socket: at least one client waits.
func (ls *listeners) accept(p *epollTCP) {
	if ls.waits(p) {
		return
	}
	if !ls.engine.Budget.TryAcquire(2) {
		ls.pause(p)
		return
	}
	for n := 1; ls.acceptOne(p, n == 1); n++ {
		if n >= ls.accepts || ls.turn.Late() || !p.queue.GoesOn(ls.engine, p.owner.Load()) || !ls.engine.Budget.Take(2) {
			return
		}
	}
}

// waits reports whether the clients of p wait at a limit. Then the port is looked at again soon.
func (ls *listeners) waits(p *epollTCP) bool {
	if !p.queue.Waits(ls.engine, p.owner.Load()) {
		return false
	}
	ls.atLimit.SuspendFor(&p.Watched, tcp.LimitPoll)
	return true
}

// acceptOne accepts one client, whose descriptors have been taken, and reports whether to go on in this turn. That
// another one than the first cannot be accepted is no news: perhaps there is none. If there is, the next turn begins with it.
func (ls *listeners) acceptOne(p *epollTCP, first bool) bool {
	e := ls.engine
	fd, from, errno := socket.Accept(p.FD)
	if errno != 0 {
		e.Budget.Release(2)
		switch {
		case !first:
		case errno == unix.EAGAIN || errno == unix.ECONNABORTED:
		default:
			e.Lines.ReportAccept(p.owner.Load().Key, errno)
			ls.pause(p)
		}
		return false
	}
	p.Served()
	book, ok := tcp.Admit(e, p.owner.Load(), p.number, from)
	if !ok {
		socket.ResetOnClose(fd)
		socket.Close(fd)
		e.Budget.Release(2)
		return true
	}
	if other := ls.lightest(); other == ls.own || !other.handOver(fd, p.owner, book) {
		ls.own.serve(fd, p.owner, book)
	}
	return true
}

// pause leaves the clients of p in the kernel's queue for a while.
func (ls *listeners) pause(p *epollTCP) {
	ls.engine.Pauses.Add(1)
	ls.pauses.Suspend(&p.Watched)
}
