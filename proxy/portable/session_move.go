package portable

import (
	"context"
	"net"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/udp"
	"kubeproxy/registry"
)

// How a session gets to its next endpoint. Any goroutine may take it from the one before; only its own goroutine takes it to the
// next one. (For the first endpoint, before that goroutine runs, begin does.)

// move connects to the next endpoint that can be; false: there is none in time, or the session has ended.
func (s *session) move(b **udpBackend) bool {
	for s.ctx.Err() == nil {
		e, ok := s.Next(monotonic.Now())
		if !ok && s.await() {
			continue
		}
		if !ok {
			return false
		}
		if *b = s.try(e); *b != nil {
			return true
		}
	}
	return false
}

// await waits until Next is to be asked again; false: that is of no use.
func (s *session) await() bool {
	ctx, cancel, ok := s.Awaits()
	if !ok {
		return false
	}
	defer cancel()
	select {
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return true
}

// try makes e the endpoint of the session, if it can be connected to; nil: it cannot.
func (s *session) try(e *rotation.Endpoint) *udpBackend {
	b, err := s.dial(e)
	if err == nil {
		if err = s.handOver(b); err == nil {
			if s.socket.engine.Cfg.NoteLocal {
				s.GoesFrom(b.conn.LocalAddr().(*net.UDPAddr).AddrPort())
			}
			s.Reached(&b.Visit)
			if s.socket.IsDraining() { // since it has a backend, or before that
				s.lookAgain()
			}
			return b
		}
		b.conn.Close()
	}
	if s.ctx.Err() == nil { // else it is not the endpoint's fault
		s.Cannot(e, err)
	}
	return nil
}

// dial opens a socket connected to e. With a host name it may take as long as a look-up takes.
func (s *session) dial(e *rotation.Endpoint) (*udpBackend, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.LookUpTimeout())
	defer cancel()
	resolver := s.socket.engine.Resolver
	addrs, err := resolver.Resolve(ctx, registry.UDP, e.Addr)
	if err != nil {
		return nil, err
	}
	var b *udpBackend
	for _, addr := range s.Arrange(e, addrs) {
		if s.Key.Loops(addr, s.socket.Number) {
			err = admit.ErrLoop
			continue
		}
		if b, err = dialUDPBackend(e, addr, s.socket.Silence()); err != nil {
			continue
		}
		if !resolver.Own.Reached(registry.UDP, b.conn.LocalAddr().(*net.UDPAddr).AddrPort(), addr) {
			return b, nil
		}
		b.conn.Close()
		err = admit.ErrOwnListener
	}
	return nil, err
}

// handOver sends what waited, in order, and then makes b the session's backend. It fails when the endpoint refuses, or the
// session has ended. It sends without mu: until b is the session's backend, no other goroutine uses b.
func (s *session) handOver(b *udpBackend) error {
	for sent := 0; ; sent++ {
		s.mu.Lock()
		next, verdict := s.HandOver(&b.Visit, sent)
		if verdict == udp.Done {
			s.backend = b
		}
		s.mu.Unlock()
		switch verdict {
		case udp.Done:
			return nil
		case udp.Over:
			return context.Canceled
		}
		if _, err := s.SendOn(next, b.send); err != nil {
			return err
		}
	}
}
