package proxy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/golang/glog"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// OnUpdate applies a batch. The balancer gets the endpoints first, so no port opens before its endpoints are known. Then
// all claims are edited, and each port that was touched is settled once, in order. So two services that swap ports in
// one batch swap two pointers, and no client is refused meanwhile (D34). Endpoints that go are let go last. While a successor
// takes over, OnUpdate waits: see [Proxier.Listeners]. After Run has been told to stop, batches are ignored.
func (p *Proxier) OnUpdate(batch registry.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitForTakeoverLocked()
	if p.stopped {
		return
	}
	p.lb.SetEndpoints(batch.Endpoints)
	touched := make(map[registry.NodePort]struct{})
	var newcomers []newcomer
	var dropped []*traffic.Tally // given back last, or what a service has carried would be forgotten when it moves to another port
	for name, service := range batch.Services {
		p.view.Lock()
		came, went := p.editClaimsLocked(name, service, touched)
		p.view.Unlock()
		newcomers, dropped = append(newcomers, came...), append(dropped, went...)
		p.lb.SetService(name, service)
	}
	slices.SortFunc(newcomers, func(a, b newcomer) int {
		return cmp.Or(cmp.Compare(p.inheritedRankLocked(a), p.inheritedRankLocked(b)), compareClaims(a.claim, b.claim))
	})
	p.view.Lock()
	for _, n := range newcomers {
		l := p.listeners[n.id]
		if l == nil {
			l = &listener{id: n.id}
			p.listeners[n.id] = l
		}
		l.claims.add(n.claim)
		touched[n.id] = struct{}{}
	}
	p.view.Unlock()
	for id := range touched {
		l := p.listeners[id]
		if l.claims.first != nil {
			p.equip(l.claims.first, id.Protocol)
		}
		p.tellKernelLocked(l)
	}
	for _, t := range dropped {
		p.tallies.Release(t)
	}
	p.applyKernelLocked() // before a listener closes, or has another owner
	var due []*listener   // only when all others have been closed: there may be descriptors for them then
	freed := false
	for _, id := range slices.SortedFunc(maps.Keys(touched), registry.NodePort.Compare) {
		l := p.listeners[id]
		wasOpen := l.socket != nil
		p.settleLocked(l)
		switch {
		case l.claims.n == 0:
			freed = freed || wasOpen
		case l.socket == nil:
			due = append(due, l)
		}
	}
	if freed {
		due = p.withThoseWithoutLocked(due, touched)
	}
	p.openLocked(due)
	p.lb.LetGo()                  // no port belongs any more to a service that went with its endpoints
	p.applyKernelLocked()         // so the next client finds none of those endpoints in the kernel
	for _, n := range newcomers { // only now: the order of claims is the same, whichever order they came in
		if owner := p.listeners[n.id].claims.first; owner != n.claim {
			n.claim.Waited = true
			if note, ok := p.conflicts.Allow(aboutPort{n.id, n.claim.Key, false}); ok {
				glog.Errorf("%s cannot have %s: %s has it; waiting%s", n.claim.Key, n.id, owner.Key, note)
			}
		}
	}
	select {
	case <-p.synced:
	default:
		p.lb.SettleOverrides()
		glog.Infof("the first state is in force: of %d ports that services claim, %d are open", len(p.listeners), len(p.listeners)-len(p.unopened))
		close(p.synced)
		if p.stage == serves {
			p.closeLeftoverLocked()
		}
	}
}

// editClaimsLocked drops the claims that a service no longer makes, renews those whose port has
// another name or other terms now, and returns those that are new, and the tallies that are to be given back. A claim that the service
// goes on making keeps its place, also when the service was deleted and created again in one step: it never
// blinks. A port that no service may have is not claimed at all.
func (p *Proxier) editClaimsLocked(name registry.Name, service *registry.Service, touched map[registry.NodePort]struct{}) (_ []newcomer, dropped []*traffic.Tally) {
	previous := p.services[name]
	wanted, refused := p.cfg.wanted(service)
	if previous != nil {
		wants, refuses := byPort(wanted), byPort(refused)
		for _, port := range previous.Ports {
			id := registry.NodePort{Protocol: port.Protocol, Number: port.Number}
			if p.renewRefusedLocked(id, name, refuses) {
				continue
			}
			l := p.listeners[id]
			had, want := l.claims.find(name), wants[id]
			delete(wants, id)
			switch {
			case want == nil:
				l.claims.remove(had)
				if had.Lifetime != nil {
					had.Lifetime.End(p.cfg.RemovalOf(had.Terms), traffic.ServiceRemoved, 0)
				}
			case want.Same(had):
				continue
			default:
				want.Lifetime, want.Waited = had.Lifetime, had.Waited
				want.Rotation = p.lb.Hold(want.Key)
				if had.Tally != nil {
					want.Tally = p.tallies.Hold(want.Key, id.Protocol)
				}
				l.claims.replace(had, want)
			}
			p.lb.Release(had.Rotation)
			if had.Tally != nil {
				dropped = append(dropped, had.Tally)
			}
			touched[id] = struct{}{}
		}
		wanted = slices.DeleteFunc(wanted, func(n newcomer) bool { return wants[n.id] == nil })
		refused = slices.DeleteFunc(refused, func(n newcomer) bool { return refuses[n.id] == nil })
	}
	if service != nil {
		p.services[name] = service
		glog.V(3).Infof("service %s: %d ports", name, len(service.Ports))
	} else {
		delete(p.services, name)
		glog.V(3).Infof("service %s is gone", name)
	}
	for _, r := range refused {
		p.refuseLocked(r.id, r.claim)
	}
	for _, n := range wanted {
		n.claim.Rotation = p.lb.Hold(n.claim.Key)
	}
	return wanted, dropped
}

// equip gives a claim what it needs to own its port. A claim that waits does without: it may never have the port, and tens of thousands
// may wait for one.
func (p *Proxier) equip(c *engine.Claim, protocol registry.Protocol) {
	if c.Tally == nil {
		c.Tally, c.Lifetime = p.tallies.Hold(c.Key, protocol), new(removal.Lifetime)
	}
}
