package proxy

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"os"
	"slices"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A PortStatus tells how things stand with one port that services claim.
type PortStatus struct {
	ID      registry.ListenerID
	Owner   registry.PortKey
	Waiting []registry.PortKey // whose claim comes next when the owner lets go, in order
	Err     error              // why the port is not open; nil when it is
	Kernel  kernel.Reason      // why the kernel does not carry it, as [kernel.Off] if -kernel is off
	Local   bool               // the owner gives its clients endpoints on the node only
	Refused bool               // no service may have it: it has no owner, and Waiting names those who ask in vain
}

// Status tells how things stand with every port that a service claims or asks for, in order. Neither a client nor a change waits for all of
// it, so the ports need not be of one moment.
func (p *Proxier) Status() []PortStatus {
	all := p.ports()
	slices.SortFunc(all, func(a, b PortStatus) int { return a.ID.Compare(b.ID) })
	return all
}

// A PortCount counts the ports of one protocol.
type PortCount struct {
	Open     int
	Unopened int // claimed, and they cannot be opened
	Starved  int // of these: for lack of permission, descriptors or loops, and not because of another program
	Refused  int // asked for, and no service may have them
	Waiting  int // claims of others on the first two
}

// PortCounts tells what Status tells in numbers, by protocol, and costs little: probes ask every second.
func (p *Proxier) PortCounts() (counts [2]PortCount) {
	p.view.RLock()
	defer p.view.RUnlock()
	for id, l := range p.listeners {
		if l.claims.n == 0 {
			continue // the update in progress is about to close it
		}
		c := &counts[id.Protocol]
		if err := l.whyClosed(); err != nil {
			c.Unopened++
			if lacksDescriptors(err) || errors.Is(err, os.ErrPermission) || errors.Is(err, engine.ErrNotStarted) {
				c.Starved++
			}
		} else {
			c.Open++
		}
		c.Waiting += l.claims.n - 1
	}
	for id := range p.refused {
		counts[id.Protocol].Refused++
	}
	return counts
}

// ErrOpening is the Err of a port that the update in progress has yet to open.
var ErrOpening = errors.New("it is being opened")

// whyClosed returns why the port is not open; nil when it is.
func (l *listener) whyClosed() error {
	if l.err == nil && l.socket == nil {
		return ErrOpening
	}
	return l.err
}

// statusPart is how many ports Status copies at a time. A change that waits comes before the next part, since a waiting writer does. All of
// ten thousand would take 1.4 ms.
const statusPart = 128

// ports is Status in no order, and each port as it is at some moment meanwhile.
func (p *Proxier) ports() []PortStatus {
	open, refused := p.portIDs()
	all := make([]PortStatus, 0, len(open)+len(refused))
	for part := range slices.Chunk(open, statusPart) {
		all = p.appendStatus(all, part, p.statusLocked)
	}
	for part := range slices.Chunk(refused, statusPart) {
		all = p.appendStatus(all, part, p.refusedLocked)
	}
	return all
}

// portIDs returns which ports services own, and which they ask for in vain.
func (p *Proxier) portIDs() (owned, refused []registry.ListenerID) {
	p.view.RLock()
	defer p.view.RUnlock()
	return slices.AppendSeq(make([]registry.ListenerID, 0, len(p.listeners)), maps.Keys(p.listeners)),
		slices.AppendSeq(make([]registry.ListenerID, 0, len(p.refused)), maps.Keys(p.refused))
}

// appendStatus adds what one gives of each port, if it is still there.
func (p *Proxier) appendStatus(all []PortStatus, ids []registry.ListenerID, one func(registry.ListenerID) (PortStatus, bool)) []PortStatus {
	p.view.RLock()
	defer p.view.RUnlock()
	for _, id := range ids {
		if s, ok := one(id); ok {
			all = append(all, s)
		}
	}
	return all
}

// statusLocked is the status of a port that a service owns; false: it has gone, or the update in progress is about to close it.
func (p *Proxier) statusLocked(id registry.ListenerID) (PortStatus, bool) {
	l := p.listeners[id]
	if l == nil || l.claims.n == 0 {
		return PortStatus{}, false
	}
	s := PortStatus{ID: id, Owner: l.claims.first.Key, Err: l.whyClosed(), Kernel: p.kernelReason(id), Local: l.claims.first.Terms.Local}
	for c := range l.claims.all() {
		if c != l.claims.first {
			s.Waiting = append(s.Waiting, c.Key)
		}
	}
	return s, true
}

// refusedLocked is the status of a port that services ask for in vain; false: none does any more.
func (p *Proxier) refusedLocked(id registry.ListenerID) (PortStatus, bool) {
	r := p.refused[id]
	if r == nil {
		return PortStatus{}, false
	}
	s := PortStatus{ID: id, Err: r.err, Refused: true, Kernel: kernel.NotOpen}
	for c := range r.claims.all() {
		s.Waiting = append(s.Waiting, c.Key)
	}
	slices.SortFunc(s.Waiting, func(a, b registry.PortKey) int {
		return cmp.Or(a.Name.Compare(b.Name), cmp.Compare(a.Port, b.Port))
	})
	return s, true
}

// Totals tells what each port of each service has carried, in order. A port that is no longer claimed
// is told of until nothing that began on it is active.
func (p *Proxier) Totals() []traffic.Totals { return p.tallies.Totals() }

// EachTotals yields what Totals lists, in no order. Neither a client nor a change waits meanwhile.
func (p *Proxier) EachTotals() iter.Seq[traffic.Totals] { return p.tallies.Each() }

// Service returns the service of a name, nil if there is none. It must not be edited.
func (p *Proxier) Service(name registry.Name) *registry.Service {
	p.view.RLock()
	defer p.view.RUnlock()
	return p.services[name]
}

// Limits tells how much is used of what there is only so much of.
func (p *Proxier) Limits() []traffic.Limit { return p.engine.Limits() }

// AcceptPauses counts the times that a TCP listener paused, because a client could not be accepted or
// there were no descriptors for it.
func (p *Proxier) AcceptPauses() uint64 { return p.engine.Paused() }

// TurnTimes returns how long turns took since the start.
func (p *Proxier) TurnTimes() traffic.TurnTimes { return p.engine.TurnTimes() }

// Stalled returns an error that names an event loop which has stood still for 5 seconds, and nil if there is none. It waits
// for nothing.
func (p *Proxier) Stalled() error { return p.engine.Stalled() }
