package faults

import "sync"

// A Mode says what the proxy does with the bytes of a connection, in each direction. The zero value forwards both.
type Mode struct{ toTarget, toClient action }

// The modes that faults use.
var (
	Blackhole  = Mode{discard, discard}   // nothing arrives at either end
	MuteTarget = Mode{forward, discard}   // the target receives requests, and its answers are lost
	MuteClient = Mode{discard, forward}   // requests are lost, and what the target sends arrives
	Hold       = Mode{holdBack, holdBack} // everything waits until Restore
)

// An action is what the proxy does with bytes that it has read.
type action int32

const (
	forward  action = iota
	discard         // acknowledged and lost
	holdBack        // they wait; TCP flow control stops the sender once the buffers are full
)

// A direction is the way of a connection's bytes to one end.
type direction struct {
	mu      sync.Mutex // guards action
	changed *sync.Cond // action has changed
	action  action
}

func (d *direction) init(a action) {
	d.changed = sync.NewCond(&d.mu)
	d.action = a
}

// set changes what is done with the bytes that come next. A direction that has lost bytes never forwards again.
func (d *direction) set(a action) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.action != discard {
		d.action = a
		d.changed.Broadcast()
	}
}

// isLossy reports whether bytes may have been lost.
func (d *direction) isLossy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.action == discard
}

// release forwards what is held.
func (d *direction) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.action == holdBack {
		d.action = forward
		d.changed.Broadcast()
	}
}

// forwards waits while bytes are held, and then reports whether they are forwarded.
func (d *direction) forwards() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.action == holdBack {
		d.changed.Wait()
	}
	return d.action == forward
}
