package proxy

import (
	"errors"

	"github.com/golang/glog"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// Inherited sockets are those of a process that was killed, or of a predecessor. The engine has them until a port opens with its own. While a
// source has not been read, a service of it may still claim the port of one, so those of a process that was killed stay open:
// clients wait in their queues.

// Inherit has batches open their ports with sockets that a keeper had from a process that was killed. The proxier owns them. Once each source
// has been read, those that no service has claimed are closed. It must be called before the first batch.
func (p *Proxier) Inherit(sockets map[registry.ListenerID]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine.Inherit(sockets)
}

// inheritedLocked returns the inherited sockets that no port has taken. They stay the engine's. What is deleted from them is the caller's.
func (p *Proxier) inheritedLocked() map[registry.ListenerID]int {
	left := p.engine.Leftover()
	p.engine.Inherit(left)
	return left
}

// resumeLocked has the engine go on, which would close the inherited sockets that no port has taken.
func (p *Proxier) resumeLocked() {
	left := p.engine.Leftover()
	p.engine.Resume()
	p.engine.Inherit(left)
}

// inheritedFirst sorts the listeners that have an inherited socket before the others. Their ports are open already, and keep the room that they have.
func inheritedFirst(due []*listener, inherited map[registry.ListenerID]int) []*listener {
	var first, others []*listener
	for _, l := range due {
		if _, has := inherited[l.id]; has {
			first = append(first, l)
		} else {
			others = append(others, l)
		}
	}
	return append(first, others...)
}

// errPredecessorHas is why a port cannot be opened yet in a successor.
var errPredecessorHas = errors.New("the process before has the port at another address, until this one serves")

// closeCollidingLocked closes the inherited sockets that keep a port which is in use from being opened, and that no service claims. It reports whether it has
// closed any. They are ours: the gate would take them for those of another program. What is known decides, also while a source has not been read. During
// a take-over such a socket is still the predecessor's, and the port has to wait.
func (p *Proxier) closeCollidingLocked(id registry.ListenerID) (closed bool, err error) {
	if !p.cfg.BindAddress.IsUnspecified() {
		return false, nil
	}
	left := p.inheritedLocked()
	for other, fd := range left {
		switch {
		case other.AtNode() != id.AtNode(), other.Addr.IsValid() == id.Addr.IsValid(), p.listeners[other] != nil: // of two addresses neither has the other's port
			continue
		case p.stage == adopts:
			return false, errPredecessorHas
		}
		delete(left, other)
		p.closeInheritedLocked(other, fd)
		closed = true
	}
	return closed, nil
}

// closeLeftoverLocked closes the inherited sockets that no port has taken, but for those that stay open unclaimed.
func (p *Proxier) closeLeftoverLocked() {
	left := p.engine.Leftover()
	for id, fd := range left {
		if !p.staysUnclaimedLocked(id) {
			delete(left, id)
			p.closeInheritedLocked(id, fd)
		}
	}
	p.engine.Inherit(left)
}

// closeInheritedLocked closes an inherited socket. A keeper has a copy of its own, in whose queue clients would wait for good.
func (p *Proxier) closeInheritedLocked(id registry.ListenerID, fd int) {
	if p.giveBackRoomLocked(id) {
		p.own.Remove(id)
	}
	if !p.keepsLocked(id) {
		sockopt.Close(fd) // a predecessor or a successor has the last copy
		return
	}
	glog.Infof("%s is closed: it was open before, and no service has it now", id)
	sockopt.EndListening(fd)
	p.tellKeeperLocked(id, true)
}

// staysUnclaimedLocked reports whether an inherited socket stays open though no service claims its port: one may that is in a source which has not
// been read. What a predecessor had for a service does not, for this process has read each source that the predecessor had read.
//
// The socket takes the descriptor of a listener from the budget: a source may stay away for good, and to read it takes descriptors. It has its place
// in the local range, too.
func (p *Proxier) staysUnclaimedLocked(id registry.ListenerID) bool {
	claims := p.inherited[id]
	switch {
	case !p.partial, p.stopped, !p.keepsLocked(id), p.listeners[id] != nil, !p.cfg.mayBeClaimed(id):
		return false
	case len(claims) > 0 && claims[0] != nobody:
		return false
	}
	if _, already := p.unclaimed[id]; already {
		return true
	}
	if addresses := p.engine.Addresses(); addresses != nil && addresses.Budget.TakeForListener() != nil {
		return false
	}
	p.unclaimed[id] = struct{}{}
	p.gate.Opened(id)
	p.own.Add(id) // a client whose endpoint leads there would wait for a service of ours
	return true
}

// giveBackRoomLocked gives back the room of a socket that stayed open unclaimed. It reports whether there was one.
func (p *Proxier) giveBackRoomLocked(id registry.ListenerID) bool {
	if _, unclaimed := p.unclaimed[id]; !unclaimed {
		return false
	}
	delete(p.unclaimed, id)
	p.gate.Closed(id)
	if addresses := p.engine.Addresses(); addresses != nil {
		addresses.Budget.ReleaseOfListener()
	}
	return true
}

// nobody stands for the owner of a port that no service claims: see [handover.Listener].
var nobody registry.PortKey
