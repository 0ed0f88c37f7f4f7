package portable

import (
	"context"
	"errors"
	"iter"
	"syscall"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
)

// A connection of the portable engine lives in the middle of a Read or a Write of package net, which has no safe point to stop at. So
// this engine passes on listeners only. Its connections go on in the old process until they end, or the drain is over.

// IsLive returns false.
func (e *Engine) IsLive() bool { return false }

// Rest has the ports that are opened from now on accept no client until Resume. Open ports go on: the predecessor accepts clients until its
// successor serves.
func (e *Engine) Rest(context.Context) error {
	e.serving = make(chan struct{})
	return nil
}

// Resume has these ports accept clients.
func (e *Engine) Resume() {
	e.CloseInherited()
	close(e.serving)
}

// waitFor waits until serving is closed; false: ctx has ended before.
func waitFor(ctx context.Context, serving <-chan struct{}) bool {
	select {
	case <-serving:
		return true
	case <-ctx.Done():
		return false
	}
}

// Lend lends nothing.
func (e *Engine) Lend(int64, bool, func([]takeover.Item) error) (next int64, err error) {
	return -1, nil
}

// Export yields nothing.
func (e *Engine) Export(bool) iter.Seq2[takeover.Item, error] {
	return func(func(takeover.Item, error) bool) {}
}

// Release does nothing.
func (e *Engine) Release() {}

var errNotLive = errors.New("the portable engine cannot adopt connections or sessions")

// AdoptTCP fails.
func (e *Engine) AdoptTCP(*handover.TCP, engine.Place, []int) error { return errNotLive }

// AdoptRest fails.
func (e *Engine) AdoptRest(*handover.Rest) error { return errNotLive }

// AdoptUDPRest fails.
func (e *Engine) AdoptUDPRest(*handover.UDPRest) error { return errNotLive }

// GiveBack does nothing.
func (e *Engine) GiveBack() {}

// AdoptUDP fails.
func (e *Engine) AdoptUDP(*handover.UDP, engine.Place, []int) error { return errNotLive }

// Descriptor returns the listening socket.
func (s *tcpSocket) Descriptor() (int, error) { return descriptorOf(s.listener) }

// Descriptor returns the socket of the port.
func (u *udpSocket) Descriptor() (int, error) { return descriptorOf(u.conn) }

// descriptorOf returns the descriptor of a socket without a copy. (File would make one, and its Fd would put both into blocking mode.)
func descriptorOf(socket syscall.Conn) (fd int, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	controlErr := raw.Control(func(open uintptr) { fd = int(open) })
	return fd, controlErr
}
