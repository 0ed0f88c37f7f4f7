package proxy

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"kubeproxy/registry"
)

// Ports that another program holds. The restart of a program is no invitation: a record may list the port of sshd or of etcd, and
// the program that binds first has it. So a port that was held when we tried to open it is left alone until it has been seen free for
// Config.HeldPortDelay without interruption. Looking does not bind it, where the system lets us see its sockets.

// heldMemory is how long a held port is remembered that no service claims any more. A record that is deleted and created again does
// not make its port a new one.
const heldMemory = time.Hour

// errOwnConnection is why a port cannot be opened that is the local port of a connection or of a session of ours.
var errOwnConnection = errors.New("a connection or a UDP session of this proxy has it as its local port until it ends")

// inUseLocked gives the error of a port that was in use when it was tried. If another program holds it, it is held from now on.
func (p *Proxier) inUseLocked(id registry.NodePort, err error, own func() map[registry.NodePort]bool) error {
	if own()[id] {
		return fmt.Errorf("%w: %w", err, errOwnConnection)
	}
	err = fmt.Errorf("another program has the port; it opens here once it has been free for %v (%w)", p.cfg.HeldPortDelay, err)
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

func isInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
