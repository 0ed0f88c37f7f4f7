package udp

import (
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/golang/glog"
	"golang.org/x/time/rate"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Port is one open UDP port, whichever engine holds its socket: who owns it, and how fast and how many sessions may
// begin. The engine keeps the sessions by their keys.
type Port struct {
	base     *engine.Base
	Number   uint16
	Owner    *atomic.Pointer[engine.Claim]
	pace     *rate.Limiter // of sessions that begin
	draining atomic.Bool
	lost     uint32 // datagrams that the kernel had no room for, as far as it has said
}

// Init prepares a port that was opened for an owner. A Port must not be copied after that.
func (p *Port) Init(c *engine.Base, number uint16, owner *atomic.Pointer[engine.Claim]) {
	p.base, p.Number, p.Owner = c, number, owner
	p.pace = admit.NewPortPace(c.Cfg.MaxNewUDPSessions)
}

// DrainSilence is for how long a session may be silent while its port drains: as long as a question that is asked again takes to be
// answered. A stop need not last for the timeout of sessions that have ended for all that is known.
const DrainSilence = 2 * time.Second

// Drain has the port let no new client in, for the process stops. Sessions go on until they have been silent for [DrainSilence]: IsIdle
// says so from now on. Any goroutine may call it.
func (p *Port) Drain() { p.draining.Store(true) }

// IsDraining reports whether Drain was called.
func (p *Port) IsDraining() bool { return p.draining.Load() }

// Silence is for how long a session of the port may be silent, as things stand with its owner.
func (p *Port) Silence() time.Duration {
	silence := p.base.Cfg.UDPTimeoutOf(p.Owner.Load().Terms)
	if p.IsDraining() {
		return min(silence, DrainSilence)
	}
	return silence
}

// CountLost counts the datagrams of clients that the kernel had no room for: so many since the socket was opened. An engine asks the
// kernel some time after it has read from the port, at the latest after [CountPeriod]: what is lost is lost because others wait to
// be read. So no datagram costs anything for this. Only the one who reads the port may call it.
func (p *Port) CountLost(total uint32) {
	if more := total - p.lost; more != 0 {
		p.lost = total
		p.base.Lines.Drop(p.Owner.Load(), traffic.DropQueueFull, int(more), netip.AddrPort{}) // who sent those is not known
	}
}

// CountPeriod is how long it takes at most until lost datagrams are counted.
const CountPeriod = 2 * time.Second

// Received notes a datagram of a client, and reports whether it is whole; one that is not is dropped.
func (p *Port) Received(client netip.AddrPort, length int) bool {
	if length < MaxDatagram {
		return true
	}
	p.base.Lines.Drop(p.Owner.Load(), traffic.DropTooLong, 1, client)
	return false
}

// Abandon drops datagrams of clients that were read from the port and that it has closed before it has looked at them.
func (p *Port) Abandon(n int) {
	if n > 0 {
		p.base.Lines.Drop(p.Owner.Load(), traffic.DropEnded, n, netip.AddrPort{})
	}
}

// MayBegin reports whether a client may begin a session with the owner of the port, and takes a descriptor for it if so.
// Otherwise it drops the client's datagram, for one of many good reasons. What costs least is asked first: isCrowded, whether
// the port's receive queue is more than half full, may cost a system call.
//
// A client that is given no session has no ending either, only a dropped datagram. A TCP client has been accepted, and is
// owed a line of its own. A datagram comes unasked, and who forges a million senders is not to have a million lines written.
func (p *Port) MayBegin(owner *engine.Claim, key admit.SessionKey, isCrowded func() bool) bool {
	c := p.base
	why, refused := traffic.DropReason(0), true
	none, away := owner.Rotation.TurnsAway(registry.UDP, owner.Terms)
	switch {
	case p.IsDraining():
		why = traffic.DropShutdown
	case !owner.Allows(key.Client.Addr()):
		why = traffic.DropSource
	case away && owner.Terms.Timeouts.Wait == 0: // no session is evicted for this
		why = dropFor(none)
	case isCrowded(), c.Sessions.LagsBehind(), !p.pace.Allow(), !c.Newcomers.Allow():
		why = traffic.DropOverload
	case c.Resolver.Own.OwnsClient(key):
		why = traffic.DropLoop
	case !c.Budget.TryAcquire(1):
		why = traffic.DropDescriptorLimit
	default:
		refused = false
	}
	if refused {
		c.Lines.Drop(owner, why, 1, key.Client)
	}
	return !refused
}

// Begin begins session s of a client that may: it counts s, and chooses its endpoints. When a limit is full it evicts another
// session, which the caller has to end; or, when all deserve to stay, it drops the client's datagram and returns false.
// self is s as the limits know it, and has to be a pointer.
func (p *Port) Begin(s *Session, self interface{ Evict() }, owner *engine.Claim, key admit.SessionKey) (evicted *admit.Entry, ok bool) {
	c := p.base
	s.port, s.Key, s.Claim, s.began = p, key, owner, time.Now()
	s.Entry.Tally, s.Entry.Session = owner.Tally, self
	s.Heard()
	full := traffic.DropClientLimit
	if ok = s.join(false); ok {
		evicted, full, ok = c.Sessions.Admit(&s.Entry, c.Cfg.SessionsOf(owner.Terms), c.Cfg.UDPTimeoutOf(owner.Terms))
	}
	if !ok {
		s.part()
		c.Budget.Release(1)
		c.Lines.Drop(owner, full, 1, key.Client)
		return nil, false
	}
	if v := glog.V(2); v {
		v.Infof("new UDP session of %v for %s", key.Client, owner.Key)
	}
	owner.Tally.Begin()
	c.Sessions.Existing.Add(1)
	s.Control = sockopt.ControlFrom(key.Local)
	s.setHeader()
	s.choose(owner) // only now: a client that is not let in does not move the cursor
	s.lookingSince = monotonic.Now()
	s.until = s.lookingSince + c.Cfg.DialTotalTimeout
	return evicted, true
}

// join counts s as one of its client address, if that is limited, and reports whether the client may have one more. A session of a
// predecessor may always.
func (s *Session) join(adopted bool) bool {
	most := s.port.base.Cfg.PerClientOf(s.Claim.Terms)
	if most == 0 {
		return true
	}
	if adopted {
		most = math.MaxInt
	}
	s.perClient = s.Claim.Tally.Clients.Join(s.Key.Client.Addr(), most)
	return s.perClient
}

// part ends what join began.
func (s *Session) part() {
	if s.perClient {
		s.Claim.Tally.Clients.Leave(s.Key.Client.Addr())
	}
}

// Ends reports whether a session of the port cannot go on, and why, as things stand with its socket and who owns that.
func (p *Port) Ends(s *Session, closed bool) (why traffic.Reason, ends bool) {
	owner := p.Owner.Load()
	switch {
	case closed && !owner.Lifetime.IsOver():
		return traffic.Shutdown, true // the port was closed under a service that goes on wanting it
	case closed, owner.Rotation != s.Claim.Rotation:
		return traffic.ServiceRemoved, true
	case !owner.Allows(s.Key.Client.Addr()):
		return traffic.SourceNotAllowed, true
	}
	return 0, false
}
