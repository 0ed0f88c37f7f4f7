package proxy

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"kubeproxy/registry"
)

// A PortStatus tells how things stand with one port that services claim.
type PortStatus struct {
	Protocol registry.Protocol
	Port     uint16
	Owner    registry.PortKey
	Waiting  []registry.PortKey // whose claim comes next when the owner lets go, in order
	Err      error              // why the port is not open; nil when it is
	Refused  bool               // no service may have it: it has no owner, and Waiting names those who ask in vain
}

// Status tells how things stand with every port that a service claims or asks for, in order.
func (p *Proxier) Status() []PortStatus {
	all := p.ports()
	slices.SortFunc(all, func(a, b PortStatus) int { return a.id().compare(b.id()) })
	return all
}

// A PortCount counts the ports of one protocol.
type PortCount struct {
	Open     int
	Unopened int // claimed, and they cannot be opened
	Starved  int // of these: for lack of permission or of descriptors, and not because of another program
	Refused  int // asked for, and no service may have them
	Waiting  int // claims of others on the first two
}

// PortCounts tells what Status tells in numbers, by protocol, and costs little: probes ask every second.
func (p *Proxier) PortCounts() (counts [2]PortCount) {
	p.view.Lock()
	defer p.view.Unlock()
	for id, l := range p.listeners {
		if l.claims.n == 0 {
			continue // the update in progress is about to close it
		}
		c := &counts[id.protocol]
		if err := l.whyClosed(); err != nil {
			c.Unopened++
			if lacksDescriptors(err) || errors.Is(err, os.ErrPermission) {
				c.Starved++
			}
		} else {
			c.Open++
		}
		c.Waiting += l.claims.n - 1
	}
	for id := range p.refused {
		counts[id.protocol].Refused++
	}
	return counts
}

// errOpening is the Err of a port that the update in progress has yet to open.
var errOpening = errors.New("it is being opened")

// whyClosed returns why the port is not open; nil when it is.
func (l *listener) whyClosed() error {
	if l.err == nil && l.socket == nil {
		return errOpening
	}
	return l.err
}

// ports is Status in no order: a change waits while it copies.
func (p *Proxier) ports() []PortStatus {
	p.view.Lock()
	defer p.view.Unlock()
	all := make([]PortStatus, 0, len(p.listeners))
	for id, l := range p.listeners {
		if l.claims.n == 0 {
			continue // the update in progress is about to close it
		}
		s := PortStatus{Protocol: id.protocol, Port: id.number, Owner: l.claims.first.key, Err: l.whyClosed()}
		for c := range l.claims.all() {
			if c != l.claims.first {
				s.Waiting = append(s.Waiting, c.key)
			}
		}
		all = append(all, s)
	}
	return append(all, p.refusedLocked()...)
}

// refusedLocked lists the ports that services ask for in vain.
func (p *Proxier) refusedLocked() []PortStatus {
	all := make([]PortStatus, 0, len(p.refused))
	for id, r := range p.refused {
		s := PortStatus{Protocol: id.protocol, Port: id.number, Err: r.err, Refused: true}
		for c := range r.claims.all() {
			s.Waiting = append(s.Waiting, c.key)
		}
		slices.SortFunc(s.Waiting, func(a, b registry.PortKey) int {
			return cmp.Or(a.Name.Compare(b.Name), cmp.Compare(a.Port, b.Port))
		})
		all = append(all, s)
	}
	return all
}

func (s PortStatus) id() portID { return portID{s.Protocol, s.Port} }

// Totals tells what each port of each service has carried, in order. A port that is no longer claimed
// is told of until nothing that began on it is active.
func (p *Proxier) Totals() []Totals { return p.tallies.totals() }

// Limits tells how much is used of what there is only so much of.
func (p *Proxier) Limits() []Limit { return p.engine.limits() }

// AcceptPauses counts the times that a TCP listener paused, because a client could not be accepted or
// there were no descriptors for it.
func (p *Proxier) AcceptPauses() uint64 { return p.engine.paused() }

// Status tells how things stand with every endpoint, in the order of services, of their ports, and of the record.
func (lb *LoadBalancerRR) Status() []EndpointStatus {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	var all []EndpointStatus
	for _, name := range slices.SortedFunc(maps.Keys(lb.services), registry.Name.Compare) {
		for _, r := range lb.services[name] {
			set := r.set.Load()
			for _, e := range set.endpoints {
				all = append(all, e.status())
			}
			for addr := range set.addrs.All() { // nobody has come to any of them
				all = append(all, EndpointStatus{Service: r.key, Addr: addr})
			}
		}
	}
	return all
}

func (e *endpoint) status() EndpointStatus {
	s := EndpointStatus{Service: e.rotation.key, Addr: e.addr}
	x := e.known.Load()
	if x == nil {
		return s
	}
	s.Active, s.Connections, s.Failures = x.active.Load(), x.connections.Load(), x.failures.Load()
	for _, protocol := range [...]registry.Protocol{registry.TCP, registry.UDP} {
		if until := time.Now().Add(e.downUntil(protocol) - sinceStart()); e.down(protocol) && until.After(s.DownUntil) {
			s.DownUntil = until
		}
	}
	return s
}

// compare orders ports by number, then by protocol.
func (id portID) compare(other portID) int {
	return cmp.Or(cmp.Compare(id.number, other.number), cmp.Compare(id.protocol, other.protocol))
}

// A Limit is something that there is only so much of.
type Limit struct {
	Name string // connections, udp_sessions, descriptors or listeners
	Used int
	Max  int
}

// An EndpointStatus tells how things stand with one endpoint of one port of a service.
type EndpointStatus struct {
	Service     registry.PortKey
	Addr        registry.Addr
	Active      int64     // connections and sessions now
	Connections uint64    // and since it came, those that have ended included
	Failures    uint64    // attempts that did not reach it
	DownUntil   time.Time // it is passed over until then, over one protocol or both; zero when it is not
}
