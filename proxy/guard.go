package proxy

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/registry"
)

// errOwnListener is what an endpoint gets that is one of our own listeners. To dial it would make
// each connection open another to ourselves until no descriptor is left: one such record would take
// the whole node down. A loop over two nodes is not seen.
var errOwnListener = errors.New("the endpoint is a listener of this proxy")

// Why a port is not claimed although a service asks for it.
var (
	errPortNotAllowed = errors.New("no service may have it (-allowed_ports)")
	errPortReserved   = errors.New("this proxy has it for its operators")
)

// refusal tells why no service may claim a port; nil when they may.
func (p *Proxier) refusal(id portID) error {
	if id.protocol == registry.TCP && slices.Contains(p.cfg.ReservedPorts, id.number) {
		return errPortReserved
	}
	within := func(r PortRange) bool { return r.First <= id.number && id.number <= r.Last }
	if len(p.cfg.AllowedPorts) > 0 && !slices.ContainsFunc(p.cfg.AllowedPorts, within) {
		return errPortNotAllowed
	}
	return nil
}

// errNotAllowed is what an endpoint gets whose address lies outside [Config].AllowedEndpoints.
var errNotAllowed = errors.New("its address is not allowed (-allowed_endpoints)")

// ownPorts knows the ports that this proxy listens on, for clients and for operators. It is asked before
// every dial, so the common answer, no, takes one load and no lock.
type ownPorts struct {
	bind      netip.Addr
	ports     [2][1 << 16 / 64]atomic.Uint64 // a bit for each protocol and port
	operators []uint16                       // TCP ports of ours that no service has, at addresses not known here

	mu    sync.Mutex // guards the fields below
	local map[netip.Addr]bool
	asked time.Time // when the addresses of this machine were read
}

// localFor is how long the addresses of this machine are taken to stay as they were read.
const localFor = 5 * time.Second

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
	case o.bind.IsUnspecified(), protocol == registry.TCP && slices.Contains(o.operators, addr.Port()):
		return to.IsUnspecified() || to.IsLoopback() || o.isLocal(to)
	case to.IsUnspecified(): // dialling the unspecified address reaches this machine's loopback
		return o.bind.IsLoopback()
	}
	return to == o.bind.WithZone("")
}

// reached tells the same of a connection that was made all the same: the address may have become one
// of this machine's since they were last read. Only a connection within one machine has the same
// address at both ends. The addresses are read again, so that the loop goes no further than this.
func (o *ownPorts) reached(protocol registry.Protocol, local, remote netip.AddrPort) bool {
	if !o.listens(portID{protocol, remote.Port()}) || local.Addr().Unmap() != remote.Addr().Unmap() {
		return false
	}
	o.mu.Lock()
	o.local = nil
	o.mu.Unlock()
	return o.contains(protocol, remote)
}

// isLocal tells whether addr belongs to an interface of this machine. When the machine will not
// say, no address is local.
func (o *ownPorts) isLocal(addr netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.local == nil || time.Since(o.asked) > localFor {
		o.local, o.asked = make(map[netip.Addr]bool), time.Now()
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return false
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				o.local[prefix.Addr().Unmap().WithZone("")] = true
			}
		}
	}
	return o.local[addr]
}
