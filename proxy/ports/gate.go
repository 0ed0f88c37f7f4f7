package ports

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"kubeproxy/registry"
)

// A Gate says whether a port may be opened now. Make it with [NewGate]. Its user guards it with a mutex; System is constant, and
// may be called without that.
type Gate struct {
	System System

	delay, period time.Duration // for which a held port has to be free; between two looks at it

	held   map[registry.NodePort]*heldPort
	lookAt time.Time // when the held ports are looked at again

	open      map[registry.NodePort]struct{}
	local     LocalRange // as it was read last
	localRead time.Time
	localOpen [2]int // open ports in it, by protocol
}

// A System is what a gate asks the machine. Its functions take time.
type System struct {
	InUse      func(bind netip.Addr, ids []registry.NodePort) map[registry.NodePort]bool // which ports other sockets have
	OwnLocal   func() map[registry.NodePort]bool                                         // the local ports of our own connections
	LocalRange func() LocalRange
}

// A heldPort is a port that another program had when it was last tried.
type heldPort struct {
	err       error     // of that attempt
	freeSince time.Time // the first of the looks, without a break until now, that found it free; zero: it was in use
	left      time.Time // since when no service claims it; zero: one does
}

// heldMemory is how long a held port is remembered that no service claims any more. A record that is deleted and created again does
// not make its port a new one.
const heldMemory = time.Hour

// localFreshFor is for how long the local range is taken to stay as it was read.
const localFreshFor = time.Second

// NewGate returns a gate of this machine. A port that another program had may be opened once it has been free for delay; it is looked at
// once in a period.
func NewGate(delay, period time.Duration) *Gate {
	return &Gate{
		System: System{InUse: InUse, OwnLocal: OwnLocal, LocalRange: ReadLocalRange},
		delay:  delay,
		period: period,
		held:   make(map[registry.NodePort]*heldPort),
		open:   make(map[registry.NodePort]struct{}),
	}
}

// Refresh reads the local range, unless it was read a moment ago. It is to be called before ports are opened.
func (g *Gate) Refresh() {
	if !g.localRead.IsZero() && time.Since(g.localRead) < localFreshFor {
		return
	}
	g.localRead = time.Now()
	now := g.System.LocalRange()
	if now.equal(g.local) {
		return
	}
	g.local, g.localOpen = now, [2]int{}
	for id := range g.open {
		g.count(id, 1)
	}
}

// count adds n to the open ports of the local range, if id is one of them.
func (g *Gate) count(id registry.NodePort, n int) {
	if g.local.Contains(id.Number) {
		g.localOpen[id.Protocol] += n
	}
}

// Local returns the local range as it was read last.
func (g *Gate) Local() LocalRange { return g.local }

// MayOpen returns why a port that a service claims is not to be tried now; nil: it may be. A [ShareError] is one of the reasons.
func (g *Gate) MayOpen(id registry.NodePort) error {
	if h := g.held[id]; h != nil {
		if h.left.IsZero() || time.Since(h.left) < heldMemory {
			h.left = time.Time{}
			return h.err
		}
		delete(g.held, id)
	}
	if g.local.Contains(id.Number) && g.localOpen[id.Protocol] >= g.local.most() {
		return &ShareError{g.local}
	}
	return nil
}

// errOwnConnection is why a port cannot be opened that is the local port of a connection or of a session of ours.
var errOwnConnection = errors.New("a connection or a UDP session of this proxy has it as its local port until it ends")

// Failed is told that a port could not be opened, and returns the error with what follows from it. If another program has the port, it is
// held from now on. own returns what [System.OwnLocal] does, and is called only if the port is in use.
func (g *Gate) Failed(id registry.NodePort, err error, own func() map[registry.NodePort]bool) error {
	switch {
	case !IsInUse(err):
		return err
	case own()[id]:
		return fmt.Errorf("%w: %w", err, errOwnConnection)
	}
	err = fmt.Errorf("another program has the port; it opens here once it has been free for %v (%w)", g.delay, err)
	g.held[id] = &heldPort{err: err}
	return err
}

// IsInUse reports whether a port cannot be opened because another socket has it.
func IsInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

// Opened is told that a port was opened.
func (g *Gate) Opened(id registry.NodePort) {
	g.open[id] = struct{}{}
	g.count(id, 1)
}

// Closed is told that a port was closed.
func (g *Gate) Closed(id registry.NodePort) {
	delete(g.open, id)
	g.count(id, -1)
}

// Unclaimed is told that no service claims a port any more.
func (g *Gate) Unclaimed(id registry.NodePort) {
	if h := g.held[id]; h != nil {
		h.left, h.freeSince = time.Now(), time.Time{}
	}
}

// IsHeld reports whether another program had a port when it was last tried.
func (g *Gate) IsHeld(id registry.NodePort) bool { return g.held[id] != nil }

// Held returns the held ports that services claim, and when they are to be looked at. The caller then asks [System.InUse] for them, and
// tells Looked.
func (g *Gate) Held() (ids []registry.NodePort, lookAt time.Time) {
	for id, h := range g.held {
		switch {
		case h.left.IsZero():
			ids = append(ids, id)
		case time.Since(h.left) >= heldMemory:
			delete(g.held, id)
		}
	}
	return ids, g.lookAt
}

// Looked is told which of the held ports are in use. It returns those that have been free for long enough, which are not held any more,
// and when to look again.
func (g *Gate) Looked(ids []registry.NodePort, inUse map[registry.NodePort]bool) (free []registry.NodePort, lookAt time.Time) {
	now := time.Now()
	g.lookAt = now.Add(g.period)
	for _, id := range ids {
		switch h := g.held[id]; {
		case h == nil || !h.left.IsZero(): // gone meanwhile
		case inUse[id]:
			h.freeSince = time.Time{}
		case h.freeSince.IsZero():
			h.freeSince = now
		case now.Sub(h.freeSince) >= g.delay:
			delete(g.held, id)
			free = append(free, id)
		}
	}
	return free, g.lookAt
}
