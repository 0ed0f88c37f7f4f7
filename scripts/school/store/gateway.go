package store

import (
	"net"
	"sync"
	"sync/atomic"
)

// A Gateway passes bytes between the program and a server. It can do something before each of the first pieces that go to the server, and
// it can have connections carry nothing any more.
type Gateway struct {
	listener net.Listener
	to       string
	before   func() error // called as often as left says

	mu    sync.Mutex // guards the fields below; held while before runs
	left  int
	err   error // of before
	conns []*passage
}

// A passage is one connection of the program, and the one to the server that belongs to it.
type passage struct {
	program, server net.Conn
	deaf            atomic.Bool // nothing passes any more, and both connections stay open
}

// NewGateway has programs that start from now on reach a server by way of an address. The gateway calls before n times at most.
func NewGateway(server Server, address string, n int, before func() error) (*Gateway, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	g := &Gateway{listener: l, to: server.Address(), before: before, left: n}
	server.LeadTo(l.Addr().String())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			go g.carry(conn)
		}
	}()
	return g, nil
}

func (g *Gateway) carry(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", g.to)
	if err != nil {
		return // the program tries again
	}
	defer server.Close()
	p := &passage{program: conn, server: server}
	g.mu.Lock()
	g.conns = append(g.conns, p)
	g.mu.Unlock()
	go func() {
		p.copy(conn, server, func() {})
		if !p.deaf.Load() {
			conn.Close()
		}
	}()
	p.copy(server, conn, g.interrupt)
}

// copy passes one direction on until either connection ends.
func (p *passage) copy(to, from net.Conn, before func()) {
	for buf := make([]byte, 65536); ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		before()
		if p.deaf.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (g *Gateway) interrupt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left == 0 || g.err != nil {
		return
	}
	g.left--
	g.err = g.before()
}

// Interrupts returns how often before was called, of most times, and its error.
func (g *Gateway) Interrupts(most int) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return most - g.left, g.err
}

// Deafen has the connections that are open now stay open and carry nothing any more, and returns their number. Others are not affected.
func (g *Gateway) Deafen() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.conns {
		p.deaf.Store(true)
	}
	return len(g.conns)
}

// Close ends all connections.
func (g *Gateway) Close() {
	g.listener.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.conns {
		p.program.Close()
		p.server.Close()
	}
}
