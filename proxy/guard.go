package proxy

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

// errOwnListener is what an endpoint gets that is one of our own listeners. To dial it would make
// each connection open another to ourselves until no descriptor is left: one such record would take
// the whole node down. [sessionKey.loops] covers loops over two nodes.
var errOwnListener = errors.New("the endpoint is a listener of this proxy")

// Why a port is not claimed although a service asks for it.
var (
	errPortNotAllowed   = errors.New("no service may have it (-allowed_ports)")
	errPortNotAllowedIn = errors.New("no service of this namespace may have it (-allowed_ports)")
	errPortReserved     = errors.New("this proxy has it for its operators")
	errPortOfEtcd       = errors.New("the etcd on this machine has it (-etcd_servers)")
)

// refusal reports why a service may not claim a port; nil: it may.
func (c *Config) refusal(service registry.Name, id portID) error {
	if id.protocol == registry.TCP {
		switch {
		case slices.Contains(c.ReservedPorts, id.number):
			return errPortReserved
		case slices.Contains(c.EtcdPorts, id.number):
			return errPortOfEtcd
		}
	}
	if len(c.AllowedPorts) == 0 && len(c.NamespacePorts) == 0 {
		return nil
	}
	allowed, named := c.NamespacePorts[service.Namespace]
	if !named {
		allowed = c.AllowedPorts
	}
	if slices.ContainsFunc(allowed, func(r PortRange) bool { return r.First <= id.number && id.number <= r.Last }) {
		return nil
	}
	if len(c.NamespacePorts) > 0 {
		return errPortNotAllowedIn
	}
	return errPortNotAllowed
}

// errNotAllowed is what an endpoint gets whose address lies outside [Config].AllowedEndpoints.
var errNotAllowed = errors.New("its address is not allowed (-allowed_endpoints)")

// errNotUnicast is what an endpoint gets whose name stands for a multicast, broadcast or unspecified address.
var errNotUnicast = fmt.Errorf("%w: it is not the address of one machine", errNotAllowed)

// ownPorts knows the ports that this proxy listens on, for clients and for operators. It is asked before
// every dial, so the common answer, no, takes one load and no lock.
type ownPorts struct {
	bind      netip.Addr
	ports     [2][1 << 16 / 64]atomic.Uint64 // a bit for each protocol and port
	operators []uint16                       // TCP ports of ours that no service has, at addresses not known here

	mu    sync.Mutex // guards the fields below
	local map[netip.Addr]bool
	since time.Time // when local was begun anew
}

// The answers of isLocal are kept for so long, and so many of them.
const (
	localFor = 5 * time.Second
	maxLocal = 1 << 12
)

func newOwnPorts(bind netip.Addr) *ownPorts {
	return &ownPorts{bind: bind.Unmap()}
}

// reserve adds operators' ports, before anybody asks. Their pages are for whoever reaches them as they are
// bound, often from this machine only: a record must not offer them to all who reach a service.
func (o *ownPorts) reserve(operators []uint16) {
	o.operators = operators
	for _, port := range operators {
		o.add(portID{registry.TCP, port})
	}
}

func (o *ownPorts) add(id portID) { o.ports[id.protocol][id.number/64].Or(1 << (id.number % 64)) }
func (o *ownPorts) remove(id portID) {
	o.ports[id.protocol][id.number/64].And(^(1 << (id.number % 64)))
}

// listens tells whether the port is ours, on whatever address.
func (o *ownPorts) listens(id portID) bool {
	return o.ports[id.protocol][id.number/64].Load()&(1<<(id.number%64)) != 0
}

// contains tells whether traffic to addr would arrive at one of our own listeners.
func (o *ownPorts) contains(protocol registry.Protocol, addr netip.AddrPort) bool {
	if !o.listens(portID{protocol, addr.Port()}) {
		return false
	}
	to := addr.Addr().Unmap().WithZone("")
	switch {
	case o.everywhere(protocol, addr.Port()):
		return to.IsUnspecified() || to.IsLoopback() || o.isLocal(to)
	case to.IsUnspecified(): // dialling the unspecified address reaches this machine's loopback
		return o.bind.IsLoopback()
	}
	return to == o.bind.WithZone("")
}

// everywhere reports whether a port of ours counts as ours at every address of this machine.
func (o *ownPorts) everywhere(protocol registry.Protocol, port uint16) bool {
	return o.bind.IsUnspecified() || protocol == registry.TCP && slices.Contains(o.operators, port)
}

// reached reports whether a socket that is connected from local to remote leads to one of our own listeners.
// It finds what contains could not know: an address that has become one of this machine's since it was last asked
// about. Only traffic within one machine has the same address at both ends. The address is remembered, so that
// contains refuses the next connection before it is made.
func (o *ownPorts) reached(protocol registry.Protocol, local, remote netip.AddrPort) bool {
	addr := remote.Addr().Unmap().WithZone("")
	if !o.listens(portID{protocol, remote.Port()}) || local.Addr().Unmap().WithZone("") != addr {
		return false
	}
	if !o.everywhere(protocol, remote.Port()) {
		return o.contains(protocol, remote)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refreshLocked()
	o.local[addr] = true
	return true
}

// isLocal reports whether datagrams to addr arrive at this machine: it is an address of an interface, or of a
// range that is routed here. If the system does not say, no address is local.
func (o *ownPorts) isLocal(addr netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refreshLocked()
	local, known := o.local[addr]
	if !known {
		local = routedHere(addr)
		o.local[addr] = local
	}
	return local
}

// refreshLocked forgets the answers when they are old or many.
func (o *ownPorts) refreshLocked() {
	if o.local == nil || len(o.local) >= maxLocal || time.Since(o.since) > localFor {
		o.local, o.since = make(map[netip.Addr]bool), time.Now()
	}
}

// errLoop is what an endpoint gets that would send a client's datagrams back to this proxy.
var errLoop = errors.New("datagrams of this client would go round in a loop")

// loops reports whether datagrams of the client would go round for ever if they were sent to an endpoint at
// to, by a listener on port:
//
//   - The endpoint is the client, which speaks from its service socket, or whose address was forged. It would be
//     sent what it sent, and each of its answers after that.
//   - The endpoint has the client's address and the listener's port: it may be another node's listener for
//     the same service, which sent the datagram here. Another program of the client's machine may have that
//     port instead. The two cannot be told apart, so such a client is given another endpoint.
func (k sessionKey) loops(to netip.AddrPort, port uint16) bool {
	return to.Addr().Unmap().WithZone("") == k.client.Addr().WithZone("") && (to.Port() == k.client.Port() || to.Port() == port)
}

// ownsClient reports whether the address of a UDP client is that of one of our own listeners: the client was
// forged, and each answer would be a datagram from one listener to another, for ever.
func (o *ownPorts) ownsClient(k sessionKey) bool {
	return o.contains(registry.UDP, k.client) || o.reached(registry.UDP, netip.AddrPortFrom(k.local.addr, 0), k.client)
}
