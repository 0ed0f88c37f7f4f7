package admit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/registry"
)

// ErrOwnListener is what an endpoint gets that is one of our own listeners. To dial it would make
// each connection open another to ourselves until no descriptor is left: one such record would take
// the whole node down. [SessionKey.Loops] covers loops over two nodes.
var ErrOwnListener = errors.New("the endpoint is a listener of this proxy")

// ErrReachedItself is what an endpoint gets that is only the echo of our own dial.
var ErrReachedItself = errors.New("the connection reached itself")

// errNotUnicast is what an endpoint gets whose name stands for a multicast, broadcast or unspecified address.
var errNotUnicast = fmt.Errorf("%w: it is not the address of one machine", registry.ErrNotAllowed)

// OwnPorts knows the ports that this proxy listens on, for clients and for operators. It is asked before
// every dial, so the common answer, no, takes two loads and no lock.
type OwnPorts struct {
	bind      netip.Addr
	ports     portSet  // of listeners of the node
	elsewhere portSet  // of listeners at addresses of their own
	operators []uint16 // TCP ports of ours that no service has, at addresses not known here

	mu    sync.Mutex // guards the fields below
	local map[netip.Addr]bool
	since time.Time // when local was begun anew

	at map[registry.ListenerID]map[netip.Addr]struct{} // addresses, by the listener of their port at the node
}

// A portSet has a bit for each protocol and port.
type portSet [2][1 << 16 / 64]atomic.Uint64

func (s *portSet) add(id registry.ListenerID) { s[id.Protocol][id.Number/64].Or(1 << (id.Number % 64)) }
func (s *portSet) remove(id registry.ListenerID) {
	s[id.Protocol][id.Number/64].And(^(1 << (id.Number % 64)))
}
func (s *portSet) has(id registry.ListenerID) bool {
	return s[id.Protocol][id.Number/64].Load()&(1<<(id.Number%64)) != 0
}

// The answers of IsLocal are kept for so long, and so many of them.
const (
	localFor = 5 * time.Second
	maxLocal = 1 << 12
)

// NewOwnPorts makes the record of the ports of a proxy whose listeners bind to an address.
func NewOwnPorts(bind netip.Addr) *OwnPorts {
	return &OwnPorts{bind: bind.Unmap(), at: make(map[registry.ListenerID]map[netip.Addr]struct{})}
}

// Reserve adds operators' ports, before the first question. Their pages are for clients that reach them as they are
// bound, often from this machine only: a record must not offer them to all who reach a service.
func (o *OwnPorts) Reserve(operators []uint16) {
	o.operators = operators
	for _, port := range operators {
		o.Add(registry.ListenerID{Protocol: registry.TCP, Number: port})
	}
}

// Add notes that the proxy has a listener.
func (o *OwnPorts) Add(id registry.ListenerID) {
	if !id.Addr.IsValid() {
		o.ports.add(id)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	port := id.AtNode()
	if o.at[port] == nil {
		o.at[port] = make(map[netip.Addr]struct{})
		o.elsewhere.add(port)
	}
	o.at[port][id.Addr] = struct{}{}
}

// Remove notes that the proxy has a listener no longer.
func (o *OwnPorts) Remove(id registry.ListenerID) {
	if !id.Addr.IsValid() {
		o.ports.remove(id)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	port := id.AtNode()
	if delete(o.at[port], id.Addr); len(o.at[port]) == 0 {
		delete(o.at, port)
		o.elsewhere.remove(port)
	}
}

// hasAt reports whether there is a listener of a port at this very address.
func (o *OwnPorts) hasAt(port registry.ListenerID, addr netip.Addr) bool {
	if !o.elsewhere.has(port) {
		return false
	}
	if addr == netip.IPv6Unspecified() { // dialling it reaches ::1; no service has 127.0.0.1
		addr = netip.IPv6Loopback()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, has := o.at[port][addr]
	return has
}

// Contains reports whether traffic to addr would arrive at one of our own listeners.
func (o *OwnPorts) Contains(protocol registry.Protocol, addr netip.AddrPort) bool {
	port := registry.ListenerID{Protocol: protocol, Number: addr.Port()}
	to := addr.Addr().Unmap().WithZone("")
	switch {
	case o.hasAt(port, to):
		return true
	case !o.ports.has(port):
		return false
	case o.everywhere(protocol, addr.Port()):
		return to.IsUnspecified() || to.IsLoopback() || o.IsLocal(to)
	case to.IsUnspecified(): // dialling the unspecified address reaches this machine's loopback
		return o.bind.IsLoopback()
	}
	return to == o.bind.WithZone("")
}

// everywhere reports whether a port of ours counts as ours at every address of this machine.
func (o *OwnPorts) everywhere(protocol registry.Protocol, port uint16) bool {
	return o.bind.IsUnspecified() || protocol == registry.TCP && slices.Contains(o.operators, port)
}

// Reached reports whether a socket that is connected from local to remote leads to one of our own listeners.
// It finds what contains could not know: an address that has become one of this machine's since it was last asked
// about. Only traffic within one machine has the same address at both ends. The address is remembered, so that
// contains refuses the next connection before it is made.
func (o *OwnPorts) Reached(protocol registry.Protocol, local, remote netip.AddrPort) bool {
	addr := remote.Addr().Unmap().WithZone("")
	if !o.ports.has(registry.ListenerID{Protocol: protocol, Number: remote.Port()}) || local.Addr().Unmap().WithZone("") != addr {
		return false
	}
	if !o.everywhere(protocol, remote.Port()) {
		return o.Contains(protocol, remote)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refreshLocked()
	o.local[addr] = true
	return true
}

// IsLocal reports whether datagrams to addr arrive at this machine: it is an address of an interface, or of a
// range that is routed here. If the system does not say, no address is local.
func (o *OwnPorts) IsLocal(addr netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refreshLocked()
	local, known := o.local[addr]
	if !known {
		local = IsRoutedHere(addr)
		o.local[addr] = local
	}
	return local
}

// refreshLocked forgets the answers when they are old or many.
func (o *OwnPorts) refreshLocked() {
	if o.local == nil || len(o.local) >= maxLocal || time.Since(o.since) > localFor {
		o.local, o.since = make(map[netip.Addr]bool), time.Now()
	}
}
