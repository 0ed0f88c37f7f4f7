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
	p.partial = batch.Partial
	p.lb.SetEndpoints(batch.Endpoints)
	touched := make(map[registry.ListenerID]struct{})
	var newcomers []*engine.Claim
	ended := make(map[registry.ListenerID][]*engine.Claim)
	var dropped []*traffic.Tally // given back last, or what a service has carried would be forgotten when it moves to another port
	for name, service := range batch.Services {
		p.view.Lock()
		came, went := p.editClaimsLocked(name, service, touched, ended)
		p.view.Unlock()
		newcomers, dropped = append(newcomers, came...), append(dropped, went...)
	}
	slices.SortFunc(newcomers, func(a, b *engine.Claim) int {
		return cmp.Or(cmp.Compare(p.inheritedRankLocked(a), p.inheritedRankLocked(b)), compareClaims(a, b))
	})
	p.view.Lock()
	for _, c := range newcomers {
		l := p.listeners[c.ID]
		if l == nil {
			l = &listener{id: c.ID}
			p.listeners[c.ID] = l
		}
		l.claims.add(c)
		touched[c.ID] = struct{}{}
	}
	p.view.Unlock()
	for id := range touched {
		if owner := p.listeners[id].claims.first; owner != nil {
			p.equip(owner)
		}
	}
	p.lb.SetServices(batch.Services, p.services)
	for id := range touched {
		p.tellKernelLocked(p.listeners[id])
	}
	for _, t := range dropped {
		p.tallies.Release(t)
	}
	p.applyKernelLocked() // before a listener closes, or has another owner
	var due []*listener   // only when all others have been closed: there may be descriptors for them then
	freed := false
	for _, id := range slices.SortedFunc(maps.Keys(touched), registry.ListenerID.Compare) {
		l := p.listeners[id]
		wasOpen := l.socket != nil
		p.settleLocked(l, ended[id])
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
	for _, c := range newcomers { // only now: the order of claims is the same, whichever order they came in
		if owner := p.listeners[c.ID].claims.first; owner != c {
			c.Waited = true
			if note, ok := p.conflicts.Allow(aboutPort{c.ID, c.Key, false}); ok {
				glog.Errorf("%s cannot have %s: %s has it; waiting%s", c.Key, c.ID, owner.Key, note)
			}
		}
	}
	if !batch.Partial {
		p.lb.SettleOverrides()
	}
	if p.stage == serves {
		p.closeLeftoverLocked()
	}
	select {
	case <-p.synced:
	default:
		glog.Infof("the first state is in force: of %d ports that services claim, %d are open", len(p.listeners), len(p.listeners)-len(p.unopened))
		if n := len(p.unclaimed); n > 0 {
			glog.Infof("%d ports that were open before stay open though no service claims them: a source has not been read yet, and clients wait for it", n)
		}
		close(p.synced)
	}
}

// editClaimsLocked drops the claims that a service no longer makes, renews those whose port has
// another name or other terms now, and returns those that are new, and the tallies that are to be given back. A claim that the service
// goes on making keeps its place, also when the service was deleted and created again in one step: it never
// blinks. A port that no service may have is not claimed at all.
func (p *Proxier) editClaimsLocked(name registry.Name, service *registry.Service, touched map[registry.ListenerID]struct{}, ended map[registry.ListenerID][]*engine.Claim) (_ []*engine.Claim, dropped []*traffic.Tally) {
	previous := p.services[name]
	wanted, refused := p.cfg.wanted(service)
	if previous != nil {
		wants, refuses := byListener(wanted), byListener(refused)
		for _, port := range previous.Ports {
			id := port.ID()
			if p.renewRefusedLocked(id, name, refuses) {
				continue
			}
			l := p.listeners[id]
			had, want := l.claims.find(name), wants[id]
			delete(wants, id)
			switch {
			case want == nil:
				l.claims.remove(had)
				ended[id] = append(ended[id], had)
			case want.Same(had):
				continue
			default:
				if want.Waited = had.Waited; had.Tally != nil {
					p.equip(want)
					want.Lifetime = had.Lifetime
				}
				l.claims.replace(had, want)
			}
			if had.Tally != nil {
				p.lb.Release(had.Rotation)
				dropped = append(dropped, had.Tally)
			}
			touched[id] = struct{}{}
		}
		wanted = slices.DeleteFunc(wanted, func(c *engine.Claim) bool { return wants[c.ID] == nil })
		refused = slices.DeleteFunc(refused, func(c *engine.Claim) bool { return refuses[c.ID] == nil })
	}
	if service != nil {
		p.services[name] = service
		glog.V(3).Infof("service %s: %d ports", name, len(service.Ports))
	} else {
		delete(p.services, name)
		glog.V(3).Infof("service %s is gone", name)
	}
	for _, c := range refused {
		p.refuseLocked(c)
	}
	return wanted, dropped
}

// equip gives a claim what it needs to own its port. A claim that waits does without: it may never have the port, and tens of thousands
// may wait for one.
func (p *Proxier) equip(c *engine.Claim) {
	if c.Tally == nil {
		c.Rotation, c.Tally, c.Lifetime = p.lb.Hold(c.Key), p.tallies.Hold(c.Key, c.ID.Protocol), new(removal.Lifetime)
	}
}
