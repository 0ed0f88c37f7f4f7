package proxy

import (
	"context"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// keepAgain is how long after an error the keeper is told again.
const keepAgain = 5 * time.Second

// tellKeeperLocked notes that a port was opened or closed. closed: what the keeper has for it is of no use any more. During a take-over the
// keeper is told nothing: it has the sockets of the predecessor, who may go on with them.
func (p *Proxier) tellKeeperLocked(id registry.ListenerID, closed bool) {
	if !p.keepsLocked(id) {
		return
	}
	p.addUntoldLocked(id, closed)
	wake(p.keeperWake)
}

func (p *Proxier) addUntoldLocked(id registry.ListenerID, closed bool) {
	p.untold[id] = p.untold[id] || closed
	delete(p.unkept, id)
}

// isKeptLocked reports whether the keeper has the socket of l; while l is not open, whether it has one that it has yet to close.
func (p *Proxier) isKeptLocked(l *listener) bool {
	closed, untold := p.untold[l.id]
	_, unkept := p.unkept[l.id]
	return l.socket == nil && closed || l.socket != nil && p.keepsLocked(l.id) && !untold && !unkept && l.id != p.telling
}

func (p *Proxier) keepsLocked(id registry.ListenerID) bool {
	return p.cfg.Keeper != nil && id.Protocol == registry.TCP && p.stage == serves
}

// closeSocketLocked closes the socket of l. The port is free then, also if the keeper has a copy.
func (p *Proxier) closeSocketLocked(l *listener) {
	copied := -1
	if p.keepsLocked(l.id) {
		fd, err := l.socket.Descriptor()
		if err == nil {
			copied, err = sockopt.Duplicate(fd)
		}
		if err != nil {
			glog.Warningf("%s is closed, and clients may wait there until the service manager has closed it too: %v", l.id, err)
		}
		p.tellKeeperLocked(l.id, true)
	}
	if p.draining {
		l.socket.Drain()
	} else {
		l.socket.Close()
	}
	l.socket = nil
	if copied >= 0 {
		sockopt.EndListening(copied) // only after Close: the engine does not accept there any more
	}
}

// keep tells the keeper of all ports that open and close, until ctx ends and it has been told the rest.
func (p *Proxier) keep(ctx context.Context) {
	failed := false
	for {
		over := ctx.Err() != nil // before the keeper is told: ports may close meanwhile, and the end comes after them
		var again <-chan time.Time
		err := p.tellKeeper()
		if err != nil {
			again = time.After(keepAgain)
			if !failed {
				glog.Warningf("the service manager does not keep all listening sockets: %v; trying again every %v", err, keepAgain)
			}
		}
		failed = err != nil
		if over {
			return
		}
		select {
		case <-p.keeperWake:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// tellKeeper tells the keeper what it does not know yet.
func (p *Proxier) tellKeeper() error {
	for {
		id, closed, fd, ok := p.nextUntold()
		switch {
		case !ok:
			return nil
		case id.Number == 0:
			return p.cfg.Keeper.Flush()
		}
		kept := true
		var err error
		if closed {
			if err = p.cfg.Keeper.Forget(id); err == nil {
				p.retryUnkept()
			}
		}
		if fd >= 0 {
			if err == nil {
				kept, err = p.cfg.Keeper.Keep(id, fd)
			}
			sockopt.Close(fd)
		}
		if err != nil || !kept {
			p.noteUnkept(id, closed, err)
		}
		if err != nil {
			return err
		}
	}
}

// retryUnkept has the keeper told of one more port: it may have room for one.
func (p *Proxier) retryUnkept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.unkept {
		p.addUntoldLocked(id, false)
		return
	}
}

// noteUnkept notes that the keeper did not hear of a port, or that it has no room for its socket if err is nil.
func (p *Proxier) noteUnkept(id registry.ListenerID, closed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch _, changed := p.untold[id]; {
	case p.stage == released: // the successor tells the keeper
	case err != nil:
		p.addUntoldLocked(id, closed)
	case !changed:
		p.unkept[id] = struct{}{}
	}
}

// nextUntold returns a port that the keeper has to be told of, zero if there is none. fd is a copy of its socket for the caller to close, negative if
// it is not open. ok is false while this process tells the keeper nothing: a successor that takes over may be telling it already.
func (p *Proxier) nextUntold() (id registry.ListenerID, closed bool, fd int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage != serves {
		return id, false, -1, false
	}
	p.cfg.Keeper.NoteKept(p.kept)
	clear(p.kept)
	for id, closed = range p.untold {
		delete(p.untold, id)
		p.telling, fd = id, -1
		if l := p.listeners[id]; l != nil && l.socket != nil {
			own, err := l.socket.Descriptor()
			if err == nil {
				fd, err = sockopt.Duplicate(own)
			}
			if err != nil {
				glog.Warningf("the service manager does not keep %s: %v", id, err)
				fd = -1
				p.unkept[id] = struct{}{}
			}
		}
		return id, closed, fd, true
	}
	p.telling = registry.ListenerID{}
	return id, false, -1, true
}
