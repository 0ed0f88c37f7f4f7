//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/registry"
	"kubeproxy/scripts/torture/model"
)

// endpoints are the TCP endpoints of a run: one for each kind of service.
type endpoints struct {
	listeners [model.NumServices]*net.TCPListener
	accepting sync.WaitGroup
	serving   atomic.Int64
	next      atomic.Uint64 // numbers of streams
	seed      uint64

	mu      sync.Mutex // guards the fields below
	open    map[uint64]*connection
	unknown []stranger
}

// A connection is one that a client has begun in this round.
type connection struct {
	number uint64
	drawn  uint64 // the number that its script was drawn from
	script model.Script
	addr   netip.AddrPort // of the client
	client model.Side
	heard  stream // the greeting that the client received; 0: none

	// Guarded by endpoints.mu until all have ended.
	endpoint *model.Side
	named    netip.AddrPort // the client, by the PROXY header
	twice    bool           // a second endpoint was given the client
}

// A stranger is a connection to an endpoint that ended before the greeting of its client had come.
type stranger struct {
	service model.Service
	own     stream
	side    model.Side
}

// listen opens the endpoints.
func (e *endpoints) listen(host netip.Addr) error {
	e.open = make(map[uint64]*connection)
	for kind := range model.NumServices {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(host, 0)))
		if err != nil {
			return err
		}
		e.listeners[kind] = l
		e.accepting.Go(func() { e.accept(kind, l) })
	}
	return nil
}

func (e *endpoints) addr(kind model.Service) netip.AddrPort {
	return e.listeners[kind].Addr().(*net.TCPAddr).AddrPort()
}

// close closes the listeners.
func (e *endpoints) close() {
	for _, l := range e.listeners {
		if l != nil {
			l.Close()
		}
	}
	e.accepting.Wait()
}

func (e *endpoints) accept(kind model.Service, l *net.TCPListener) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			return // closed
		}
		e.serving.Add(1)
		go func() {
			defer e.serving.Add(-1)
			e.serve(kind, conn)
		}()
	}
}

// serve plays the endpoint's side of a connection, once its first bytes have said which one it is.
func (e *endpoints) serve(kind model.Service, conn *net.TCPConn) {
	p := newPlayer(conn, fromEndpoint|stream(e.next.Add(1)))
	source, problem := p.header(kind)
	if kind == model.SpeaksFirst {
		p.write(greeting)
	}
	if problem != "" || p.over || !p.greet() {
		side := p.end()
		side.Problem = problem
		e.mu.Lock()
		defer e.mu.Unlock()
		e.unknown = append(e.unknown, stranger{kind, p.own, side})
		return
	}
	number := uint64(p.peer())
	e.mu.Lock()
	c := e.open[number]
	e.mu.Unlock()
	switch {
	case c == nil:
		problem = fmt.Sprintf("received the greeting of client %d, which does not exist", number)
	case c.script.Service != kind:
		problem = fmt.Sprintf("received a client of service %v", c.script.Service)
	}
	if problem != "" {
		side := p.end()
		side.Problem = problem
		e.mu.Lock()
		defer e.mu.Unlock()
		e.unknown = append(e.unknown, stranger{kind, p.own, side})
		return
	}
	side := p.play(c.script.Endpoint, rand.New(rand.NewPCG(e.seed, uint64(fromEndpoint)|number)))
	e.mu.Lock()
	defer e.mu.Unlock()
	c.named, c.twice = source, c.endpoint != nil
	c.endpoint = &side
}

// header receives the PROXY header of the services that have one.
func (p *player) header(kind model.Service) (source netip.AddrPort, problem string) {
	var first byte
	switch kind {
	case model.HeaderV1:
		first = 'P'
	case model.HeaderV2:
		first = '\r'
	default:
		return source, ""
	}
	for got := make([]byte, 0, proxyproto.MaxHeader); ; {
		n, err := p.conn.Read(got[len(got) : len(got)+1]) // no byte behind the header
		got = got[:len(got)+n]
		if err != nil {
			p.hear(err)
			p.over = true
			if len(got) > 0 {
				problem = fmt.Sprintf("the connection ended within the PROXY header, after %q", got)
			}
			return source, problem
		}
		if got[0] != first {
			return source, fmt.Sprintf("the connection began with %q; want a PROXY header of %v", got, kind)
		}
		switch h, length, err := proxyproto.Parse(got, registry.TCP); {
		case err != nil:
			return source, fmt.Sprintf("%v: %q", err, got)
		case length > 0:
			return h.Source, ""
		}
	}
}
