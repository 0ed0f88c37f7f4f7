package ports

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"kubeproxy/registry"
)

// A Gate says whether a port may be opened now. Make it with [NewGate]. Its user guards it with a mutex; System is constant, and
// may be called without that.
type Gate struct {
	System System

	delay, period time.Duration // for which a held port has to be free; between two looks at it

	held   map[registry.ListenerID]*heldPort
	lookAt time.Time // when the held ports are looked at again

	open      map[registry.ListenerID]struct{}
	portsOpen map[registry.ListenerID]int // how many of these each port has, by its listener at the node
	local     LocalRange                  // as it was read last
	localRead time.Time
	localOpen [2]int // open ports in it, by protocol
}

// A System is what a gate asks the machine. Its functions take time.
type System struct {
	InUse      func(bind netip.Addr, ids, own []registry.ListenerID) map[registry.ListenerID]bool // which of ids sockets have that are not own
	OwnLocal   func() map[registry.ListenerID]bool                                                // the local ports of our own connections, at the node
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

// maxMissed is how many looks may be missed in a row before a held port counts as unseen. One that is a little late means nothing.
const maxMissed = 3

// NewGate returns a gate of this machine. A port that another program had may be opened once it has been free for delay; it is looked at
// once in a period.
func NewGate(delay, period time.Duration) *Gate {
	return &Gate{
		System: System{InUse: InUse, OwnLocal: OwnLocal, LocalRange: ReadLocalRange},
		delay:  delay,
		period: period,
		held:   make(map[registry.ListenerID]*heldPort),
		open:   make(map[registry.ListenerID]struct{}),

		portsOpen: make(map[registry.ListenerID]int),
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
	for port := range g.portsOpen {
		g.count(port, 1)
	}
}

// count adds n to the open ports of the local range, if port is one of them.
func (g *Gate) count(port registry.ListenerID, n int) {
	if g.local.Contains(port.Number) {
		g.localOpen[port.Protocol] += n
	}
}

// Local returns the local range as it was read last.
func (g *Gate) Local() LocalRange { return g.local }

// MayOpen returns why a port that a service claims is not to be tried now; nil: it may be. A [ShareError] is one of the reasons. A held port whose
// services had all gone is looked at again from now on.
func (g *Gate) MayOpen(id registry.ListenerID) error {
	if h := g.held[id]; h != nil {
		if h.left.IsZero() || time.Since(h.left) < heldMemory {
			h.left = time.Time{}
			return h.err
		}
		delete(g.held, id)
	}
	if g.local.Contains(id.Number) && !g.HasOpen(id) && g.localOpen[id.Protocol] >= g.local.most() {
		return &ShareError{g.local}
	}
	return nil
}

// errOwnConnection is why a port cannot be opened that is the local port of a connection or of a session of ours.
var errOwnConnection = errors.New("a connection or a UDP session of this proxy has it as its local port until it ends")

// Failed is told that a port could not be opened, and returns the error with what follows from it. If another program has the port, it is
// held from now on. own returns what [System.OwnLocal] does, and is called only if the port is in use.
func (g *Gate) Failed(id registry.ListenerID, err error, own func() map[registry.ListenerID]bool) error {
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL) && id.Addr.IsValid():
		return fmt.Errorf("%w (%w)", ErrNotHere, err)
	case !IsInUse(err):
		return err
	case own()[id.AtNode()]:
		return fmt.Errorf("%w: %w", err, errOwnConnection)
	}
	err = g.heldBy(err)
	g.held[id] = &heldPort{err: err}
	return err
}

// Hold is told that another process of ours found a port held by another program. No service claims it here yet.
func (g *Gate) Hold(id registry.ListenerID) {
	g.held[id] = &heldPort{err: g.heldBy(syscall.EADDRINUSE), left: time.Now()}
}

// heldBy is why a held port cannot be opened; err is what the system said.
func (g *Gate) heldBy(err error) error {
	return fmt.Errorf("another program has the port; it opens here once it has been free for %v (%w)", g.delay, err)
}

// ErrNotHere is why a listener cannot be opened whose address the node does not have.
var ErrNotHere = errors.New("no interface of this node has the address, and no range of -service_cidr")

// IsInUse reports whether a port cannot be opened because another socket has it.
func IsInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

// Opened is told that a port was opened.
func (g *Gate) Opened(id registry.ListenerID) {
	g.open[id] = struct{}{}
	port := id.AtNode()
	if g.portsOpen[port]++; g.portsOpen[port] == 1 {
		g.count(port, 1)
	}
}

// Closed is told that a port was closed.
func (g *Gate) Closed(id registry.ListenerID) {
	delete(g.open, id)
	port := id.AtNode()
	if g.portsOpen[port]--; g.portsOpen[port] == 0 {
		delete(g.portsOpen, port)
		g.count(port, -1)
	}
}

// HasOpen reports whether the port of a listener is open, at any address.
func (g *Gate) HasOpen(id registry.ListenerID) bool { return g.portsOpen[id.AtNode()] > 0 }

// Unclaimed is told that no service claims a port any more.
func (g *Gate) Unclaimed(id registry.ListenerID) {
	if h := g.held[id]; h != nil {
		h.left, h.freeSince = time.Now(), time.Time{}
	}
}

// IsHeld reports whether another program had a port when it was last tried.
func (g *Gate) IsHeld(id registry.ListenerID) bool { return g.held[id] != nil }

// Held returns the held ports that services claim, the open listeners that have these ports at other addresses, and when they are to be
// looked at. The caller then asks [System.InUse] for them, and tells Looked.
func (g *Gate) Held() (ids, own []registry.ListenerID, lookAt time.Time) {
	beside := make(map[registry.ListenerID]bool)
	for id, h := range g.held {
		switch {
		case h.left.IsZero():
			ids = append(ids, id)
			beside[id.AtNode()] = g.HasOpen(id)
		case time.Since(h.left) >= heldMemory:
			delete(g.held, id)
		}
	}
	if slices.Contains(slices.Collect(maps.Values(beside)), true) {
		for id := range g.open {
			if beside[id.AtNode()] {
				own = append(own, id)
			}
		}
	}
	return ids, own, g.lookAt
}

// Looked is told which of the held ports are in use. It returns those that have been free for long enough, which are not held any more,
// and when to look again. If nobody has looked for a while, since the process stood still or a successor was at work, the time before does not count:
// a program may have been there and gone meanwhile.
func (g *Gate) Looked(ids []registry.ListenerID, inUse map[registry.ListenerID]bool) (free []registry.ListenerID, lookAt time.Time) {
	now := time.Now()
	unseen := now.Sub(g.lookAt) > maxMissed*g.period
	g.lookAt = now.Add(g.period)
	for _, id := range ids {
		switch h := g.held[id]; {
		case h == nil || !h.left.IsZero(): // gone meanwhile
		case inUse[id]:
			h.freeSince = time.Time{}
		case h.freeSince.IsZero(), unseen:
			h.freeSince = now
		case now.Sub(h.freeSince) >= g.delay:
			delete(g.held, id)
			free = append(free, id)
		}
	}
	return free, g.lookAt
}
