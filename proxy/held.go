package proxy

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"kubeproxy/registry"
)

// Ports that another program holds. The restart of a program is no invitation: a record may list the port of sshd or of etcd, and
// whoever binds first has it. So a port that was held when we tried to open it is left alone until it has been seen free for
// Config.HeldPortDelay without interruption. Looking does not bind it, where the system lets us see its sockets.

// heldMemory is how long a held port is remembered that no service claims any more. A record that is deleted and created again does
// not make its port a new one.
const heldMemory = time.Hour

// A heldPort is a port that another program had when it was last tried.
type heldPort struct {
	err       error     // of that attempt
	freeSince time.Time // the first of the probes, without a break until now, that found it free; zero: it was in use
	left      time.Time // since when no service claims it; zero: one does
}

// errOwnConnection is why a port cannot be opened that is the local port of a connection or of a session of ours.
var errOwnConnection = errors.New("a connection or a UDP session of this proxy has it as its local port until it ends")

// inUseLocked gives the error of a port that was in use when it was tried. If another program holds it, it is held from now on.
func (p *Proxier) inUseLocked(id registry.NodePort, err error, own func() map[registry.NodePort]bool) error {
	if own()[id] {
		return fmt.Errorf("%w: %w", err, errOwnConnection)
	}
	err = fmt.Errorf("%w: it is taken once it has been free for %v", err, p.cfg.HeldPortDelay)
	p.held[id] = &heldPort{err: err}
	return err
}

// heldLocked returns why a port that a service claims is not to be tried now; nil: it may be.
func (p *Proxier) heldLocked(id registry.NodePort) error {
	h := p.held[id]
	switch {
	case h == nil:
		return nil
	case !h.left.IsZero() && time.Since(h.left) >= heldMemory:
		delete(p.held, id)
		return nil
	}
	h.left = time.Time{}
	return h.err
}

// unclaimLocked notes that no service claims a port any more.
func (p *Proxier) unclaimLocked(id registry.NodePort) {
	if h := p.held[id]; h != nil {
		h.left, h.freeSince = time.Now(), time.Time{}
	}
}

// probeHeld looks at the held ports that services claim, and opens those that have been free for long enough. It returns when to look
// again; false: there is none to look at.
func (p *Proxier) probeHeld() (next time.Time, ok bool) {
	p.mu.Lock()
	var ids []registry.NodePort
	for id, h := range p.held {
		switch {
		case h.left.IsZero():
			ids = append(ids, id)
		case time.Since(h.left) >= heldMemory:
			delete(p.held, id)
		}
	}
	next = p.probeAt
	taken := p.stage.isTakenOver()
	p.mu.Unlock()
	if len(ids) == 0 || taken {
		return time.Time{}, false
	}
	if now := time.Now(); now.Before(next) {
		return next, true
	}
	inUse := p.probe(p.cfg.BindAddress, ids) // takes time, and nobody waits for it
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.probeAt = now.Add(p.cfg.HeldPortProbePeriod)
	var due []*listener
	for _, id := range ids {
		h, l := p.held[id], p.listeners[id]
		switch {
		case h == nil || l == nil || p.stopped || p.stage.isTakenOver(): // gone meanwhile
		case inUse[id]:
			h.freeSince = time.Time{}
		case h.freeSince.IsZero():
			h.freeSince = now
		case now.Sub(h.freeSince) >= p.cfg.HeldPortDelay:
			delete(p.held, id)
			due = append(due, l)
		}
	}
	p.openLocked(inOrder(due))
	return p.probeAt, true
}

func isInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
