package proxy

import (
	"errors"

	"github.com/golang/glog"

	"kubeproxy/proxy/kernel"
	"kubeproxy/registry"
)

// What the kernel carries beside the engine: see package kernel. Its table follows the listeners: a port is taken out of it before its
// listener closes or its owner changes, and enters it only when its listener is open.

// newCarrier returns what has the kernel carry ports; nil if it is not to, or cannot: kernelOff then says why. cfg is as the caller of NewProxier
// gave it, without defaults.
func (p *Proxier) newCarrier(cfg Config) *kernel.Carrier {
	addresses := p.engine.Addresses()
	switch {
	case !cfg.Kernel:
		return nil
	case !kernel.Supported || addresses == nil:
		p.kernelOff = errors.New("it takes Linux")
	case p.cfg.BindAddress.IsLoopback():
		p.kernelOff = errors.New("with -bind_address on the loopback there are no clients for it: give another address")
	}
	if p.kernelOff != nil {
		glog.Warningf("kernel: no port is carried: %v", p.kernelOff)
		return nil
	}
	c := kernel.New(p.cfg.BindAddress, kernel.Node{
		Algorithm: p.lb.Algorithm,
		Refuse:    addresses.Refuse,
		IsLocal:   addresses.Own.IsLocal,
		Bound:     cfg.boundByFlags(),
		OnRemoval: cfg.OnRemoval,
	})
	p.lb.Changed = c.Changed
	return c
}

// boundByFlags reports, by protocol, whether a flag applies to each client, which the kernel would not keep to: a limit of each service, or
// PROXY headers that have to be read.
func (cfg *Config) boundByFlags() [2]bool {
	return [2]bool{
		registry.TCP: cfg.MaxConnectionsPerService != 0 || cfg.MaxConnectionsPerClient != 0 || cfg.IdleTimeout != 0 || len(cfg.ProxyProtocolFrom) > 0,
		registry.UDP: cfg.MaxUDPSessionsPerService != 0 || cfg.MaxConnectionsPerClient != 0,
	}
}

// tellKernelLocked notes who has a port.
func (p *Proxier) tellKernelLocked(l *listener) {
	switch {
	case p.kernel == nil:
	case l.socket == nil:
		p.kernel.Claim(l.id, nil)
	default:
		p.kernel.Claim(l.id, l.claims.first) // nil: it is about to be closed
	}
}

// applyKernelLocked puts in force what was noted.
func (p *Proxier) applyKernelLocked() {
	if p.kernel != nil {
		p.kernel.Apply()
	}
}

// KernelStatus returns what the kernel carries, and why not more; nil if it is not to carry anything.
func (p *Proxier) KernelStatus() *kernel.Status {
	switch {
	case p.kernel != nil:
		return p.kernel.Status()
	case p.kernelOff != nil:
		s := &kernel.Status{Off: p.kernelOff, Ports: make([]int, len(kernel.Reasons()))}
		for _, n := range p.PortCounts() {
			s.Ports[kernel.Off] += n.Open
		}
		return s
	}
	return nil
}

// kernelReason returns why the kernel does not carry a port.
func (p *Proxier) kernelReason(id registry.ListenerID) kernel.Reason {
	if p.kernel == nil {
		return kernel.Off
	}
	return p.kernel.Why(id)
}
