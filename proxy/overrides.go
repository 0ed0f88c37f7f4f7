package proxy

import (
	"kubeproxy/proxy/balance"
	"kubeproxy/registry"
)

// Override puts an operator's word in force: see [balance.LoadBalancerRR.Override]. While a successor takes over it waits, and then fails, since
// the successor has to be asked.
func (p *Proxier) Override(match registry.AddrMatch, o balance.Override, force bool) (done []balance.Override, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.inChargeLocked(); err != nil {
		return nil, err
	}
	done, err = p.lb.Override(match, o, force)
	p.applyKernelLocked() // so the next client finds none of those endpoints in the kernel
	for i := range done {
		if p.kernel != nil && done[i].Word == balance.Disable {
			p.kernel.EndFlows(done[i].Service, done[i].Addr.IP)
		}
	}
	return done, err
}

// Enable ends overrides: see [balance.LoadBalancerRR.Enable].
func (p *Proxier) Enable(service registry.Name, match registry.AddrMatch) (ended []balance.Override, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.inChargeLocked(); err != nil {
		return nil, err
	}
	ended = p.lb.Enable(service, match)
	p.applyKernelLocked()
	return ended, nil
}

// inChargeLocked waits until no successor is at work, and returns an error if this process is not the one that serves.
func (p *Proxier) inChargeLocked() error {
	p.waitForTakeoverLocked()
	switch p.stage {
	case released:
		return ErrSuccessor
	case adopts:
		return errStarting
	}
	return nil
}
