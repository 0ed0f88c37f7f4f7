package proxy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/golang/glog"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
	"kubeproxy/registry"
)

// waitForTakeoverLocked waits until no successor is at work.
func (p *Proxier) waitForTakeoverLocked() {
	for p.stage.isTakenOver() {
		p.settled.Wait()
	}
}

// Listeners begins a take-over: see [takeover.Predecessor]. From here to Thaw or Release, OnUpdate and the end of Run wait.
func (p *Proxier) Listeners() ([]takeover.Item, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage != serves || p.stopped {
		return nil, errors.New("no take-over can begin: another one is under way, or the proxy stops")
	}
	items := []takeover.Item{handover.Encode(&handover.Greeting{Version: handover.Version, Live: p.engine.IsLive()})}
	for _, l := range inOrder(slices.Collect(maps.Values(p.listeners))) {
		message := handover.Listener{ID: l.id, Bind: p.cfg.At(l.id).Addr(), Open: l.socket != nil, Kept: p.isKeptLocked(l)}
		message.Held = !message.Open && p.gate.IsHeld(l.id)
		for c := range l.claims.all() {
			message.Claims = append(message.Claims, c.Key)
		}
		var descriptors []int
		if l.socket != nil {
			fd, err := l.socket.Descriptor()
			if err != nil {
				return nil, fmt.Errorf("listener of %s: %w", l.id, err)
			}
			descriptors = []int{fd}
		}
		items = append(items, handover.Encode(&message, descriptors...))
	}
	for id, fd := range p.inheritedLocked() { // or the successor would take what a keeper has for another program's
		message := handover.Listener{ID: id, Bind: p.cfg.At(id).Addr(), Open: true, Kept: true, Claims: []registry.PortKey{nobody}}
		items = append(items, handover.Encode(&message, fd))
	}
	for id, closed := range p.untold {
		if closed && p.listeners[id] == nil { // it has just closed, and the keeper has yet to close its socket
			items = append(items, handover.Encode(&handover.Listener{ID: id, Bind: p.cfg.At(id).Addr(), Kept: true, Claims: []registry.PortKey{nobody}}))
		}
	}
	p.stage, p.lent = offers, 0
	return items, nil
}

// Lend passes on some of the connections and sessions while they go on here: see [takeover.Predecessor].
func (p *Proxier) Lend(sessions bool, send func([]takeover.Item) error) (more bool, err error) {
	if p.lent < 0 {
		return false, nil
	}
	p.mu.Lock()
	offered := p.stage == offers
	p.mu.Unlock() // the stage changes only by what the caller calls, and others need not wait
	if !offered {
		return false, errors.New("there is no take-over to lend for")
	}
	p.lent, err = p.engine.Lend(p.lent, sessions, send)
	return p.lent >= 0, err
}

// Freeze brings the engine to rest, and yields what it carries, after what the balancer has learned.
func (p *Proxier) Freeze(ctx context.Context) (iter.Seq2[takeover.Item, error], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage != offers {
		return nil, errors.New("there is no take-over to freeze for")
	}
	if err := p.engine.Rest(ctx); err != nil {
		return nil, err
	}
	p.stage = rests
	if p.kernel != nil {
		p.kernel.Count() // the counters go to the successor
	}
	return func(yield func(takeover.Item, error) bool) {
		for message := range p.lb.Export() {
			if !yield(handover.Encode(message), nil) {
				return
			}
		}
		for item, err := range p.engine.Export(p.lent < 0) {
			if !yield(item, err) {
				return
			}
		}
	}, nil
}

// Thaw ends a take-over that failed: everything goes on.
func (p *Proxier) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stage.isTakenOver() {
		return
	}
	if p.stage == rests {
		p.resumeLocked()
	}
	p.stage = serves
	p.settled.Broadcast()
	wake(p.wake)
	wake(p.keeperWake)
}

// Release ends a take-over that succeeded: what the successor has is closed here, and its peers do not notice. Run still has to be
// told to stop; what the successor does not have ends as it does then.
func (p *Proxier) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stage.isTakenOver() {
		return
	}
	atRest := p.stage == rests
	if atRest {
		p.engine.Release()
	}
	p.stage = released
	clear(p.untold) // the successor tells the keeper
	clear(p.unkept)
	p.closeAllLocked()
	if atRest {
		p.engine.Resume()
	}
	p.settled.Broadcast()
}

// AdoptListeners keeps the listeners of a predecessor for the first batch: see [takeover.Successor]. Where services want the same port, the
// owner of before has it again. It must be called before the first batch.
func (p *Proxier) AdoptListeners(items []takeover.Item) (live bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sockets := make(map[registry.ListenerID]int)
	defer func() {
		if err != nil {
			for _, item := range items {
				closeDescriptors(item)
			}
		}
	}()
	if p.stage != serves || len(p.services) > 0 || p.stopped {
		return false, errors.New("listeners can only be adopted before the first configuration")
	}
	inherited := make(map[registry.ListenerID][]registry.PortKey)
	for _, item := range items {
		message, err := handover.Decode(item)
		if err != nil {
			return false, err
		}
		switch r := message.(type) {
		case *handover.Greeting:
			live = r.Live && r.Version == handover.Version && p.engine.IsLive()
		case *handover.Listener:
			if r.Bind != p.cfg.At(r.ID).Addr() {
				return false, fmt.Errorf("the predecessor listens on %s, and -bind_address is %s: stop it first", r.Bind, p.cfg.BindAddress)
			}
			if inherited[r.ID] != nil {
				return false, fmt.Errorf("there are two listeners of %s", r.ID)
			}
			inherited[r.ID] = r.Claims
			if r.Open {
				sockets[r.ID] = item.Descriptors[0]
			} else if r.Held {
				p.gate.Hold(r.ID)
			}
			if r.Kept {
				p.kept[r.ID] = struct{}{}
				if !r.Open {
					p.addUntoldLocked(r.ID, true)
				}
			}
		default:
			return false, fmt.Errorf("%T among the listeners", message)
		}
	}
	if err := p.engine.Rest(context.Background()); err != nil {
		return false, err
	}
	p.engine.Inherit(sockets)
	p.inherited, p.stage = inherited, adopts
	if p.kernel != nil {
		p.kernel.Prepare() // before the predecessor's table goes
	}
	return live, nil
}

// inheritedRankLocked orders the claims on a port as a predecessor had them. Those that it did not have come last.
func (p *Proxier) inheritedRankLocked(c *engine.Claim) int {
	for i, key := range p.inherited[c.ID] {
		if key.Name == c.Key.Name {
			return i
		}
	}
	return math.MaxInt
}

// Borrow prepares to take over connections that go on in the predecessor, after the first batch: see [takeover.Successor].
func (p *Proxier) Borrow(items iter.Seq2[takeover.Item, error]) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.adoptLocked(items)
}

// Adopt takes over the connections and sessions of a predecessor, after the first batch. None of them moves before Serve. When items yields
// an error, or an item is wrong, Adopt and Borrow forget all that was adopted; the predecessor goes on with it.
func (p *Proxier) Adopt(items iter.Seq2[takeover.Item, error]) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.adoptLocked(items); err != nil {
		return err
	}
	a := p.adoption
	p.endAdoptionLocked()
	glog.Infof("took over %d TCP connections and %d UDP sessions of %d services", a.connections, a.sessions, len(a.claims))
	return nil
}

func (p *Proxier) adoptLocked(items iter.Seq2[takeover.Item, error]) error {
	if p.stage != adopts || p.stopped {
		return errors.New("nothing can be adopted after Serve, without listeners, or once the proxy stops")
	}
	if p.adoption == nil {
		p.adoption = newAdoption(p)
	}
	for item, err := range items {
		if err == nil {
			if err = p.adoption.adopt(item); err != nil {
				closeDescriptors(item)
			}
		}
		if err != nil {
			p.engine.Release()
			p.endAdoptionLocked()
			return err
		}
	}
	return nil
}

// endAdoptionLocked gives back what has not been adopted, if something was borrowed.
func (p *Proxier) endAdoptionLocked() {
	if p.adoption == nil {
		return
	}
	p.engine.GiveBack()
	p.adoption.end()
	p.adoption = nil
}

// Serve begins to accept clients, and has what was adopted go on. Once the proxy stops it does nothing.
func (p *Proxier) Serve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage != adopts || p.stopped {
		return
	}
	p.endAdoptionLocked() // it has lent something, and ended
	p.stage = serves
	p.closeLeftoverLocked() // a predecessor that has the last copy closes it
	p.inherited = nil
	p.resumeLocked()
	for id, l := range p.listeners {
		if _, kept := p.kept[id]; kept != (l.socket != nil) {
			p.tellKeeperLocked(id, true) // also if it is open: the keeper may have an earlier socket of it
		}
	}
	wake(p.keeperWake)
}
