package tcp

import (
	"net/netip"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Queue decides for one port whether clients stay in the kernel's queue because a limit is reached. A client that closes a connection and
// opens the next does not exceed the limit, but it comes before the proxy has read the end of the one before. So clients wait for
// WaitAtLimit. If no connection has ended by then, all in the queue are refused: a client that waits longer does not know that it should
// turn to another node. The zero value is ready. It is not safe for concurrent use.
type Queue struct {
	until   time.Duration // clients wait; 0 while none does. A time of package monotonic, as the next
	refused time.Duration // the last one that waited in vain; 0: none since until was set
}

// LimitPoll is how often a port asks again while its clients wait.
const LimitPoll = time.Millisecond

// refusing is how long after a refusal clients are refused at once: longer than a turn of a loop that refuses one after the other.
const refusing = 10 * time.Millisecond

// Waits reports whether the port is to leave its clients in the kernel's queue, and to ask again after LimitPoll. It is asked while there is a
// client, as the wait begins with that. owner is that of the port.
func (q *Queue) Waits(base *engine.Base, owner *engine.Claim) bool {
	if q.hasRoom(base, owner) {
		return false
	}
	now := monotonic.Now()
	if q.until == 0 || q.refused != 0 && now-q.refused > refusing {
		*q = Queue{until: now + base.Cfg.WaitAtLimit}
	}
	if now < q.until {
		return true
	}
	q.refused = now
	return false
}

// GoesOn reports whether a port that has just accepted a client may accept the next one without asking Waits: there is room, or clients are
// being refused. It begins no wait: perhaps there is no next one, and the wait would be over when one comes.
func (q *Queue) GoesOn(base *engine.Base, owner *engine.Claim) bool {
	return q.hasRoom(base, owner) || q.refused != 0
}

// hasRoom reports whether no limit is reached. Then no client waits or is refused any more.
func (q *Queue) hasRoom(base *engine.Base, owner *engine.Claim) bool {
	all, ofService := base.Connections.Load(), owner.Tally.Active.Load()
	if all >= int64(base.Cfg.MaxConnections) || ofService >= base.Cfg.ConnectionsOf(owner.Terms) || !base.MayConnect(ofService, all) {
		return false
	}
	*q = Queue{}
	return true
}

// Admit opens the account of a client that was accepted, and counts it. False: the client is refused, and its account is closed. Any
// goroutine may call Admit. It takes no more than a few atomic additions, because it runs between two accepts.
func Admit(base *engine.Base, owner *engine.Claim, port uint16, client netip.AddrPort) (Connection, bool) {
	c := Connection{base: base, Claim: owner, port: port, client: client, began: monotonic.Now()}
	c.awaitsHeader = len(base.Cfg.ProxyProtocolFrom) > 0 && registry.Within(base.Cfg.ProxyProtocolFrom, client.Addr())
	if v := glog.V(2); v {
		v.Infof("accepted %s for %s", client, owner.Key)
	}
	return c, c.admit()
}

// admit counts c as a client of its claim, and reports whether it is let in. Who a client is that another proxy brings is known only
// later: see [Connection.Introduce].
func (c *Connection) admit() bool {
	now, ofService := c.base.Connections.Add(1), c.Claim.Tally.Begin()
	switch cfg := &c.base.Cfg; {
	case !c.awaitsHeader && !c.Claim.Allows(c.client.Addr()):
		c.TurnAway(traffic.SourceNotAllowed, nil)
	case now > int64(cfg.MaxConnections):
		c.TurnAway(traffic.ConnectionLimit, nil)
	case ofService > cfg.ConnectionsOf(c.Claim.Terms), !c.base.MayConnect(ofService-1, now-1):
		c.TurnAway(traffic.ServiceLimit, nil)
	case !c.awaitsHeader && !c.join():
		c.TurnAway(traffic.ClientLimit, nil)
	default:
		return true
	}
	return false
}

// join counts c as one of its client address, if that is limited, and reports whether the client may have one more.
func (c *Connection) join() bool {
	most := c.base.Cfg.PerClientOf(c.Claim.Terms)
	c.perClient = most > 0 && c.Claim.Tally.Clients.Join(c.client.Addr(), most)
	return c.perClient || most == 0
}

// part ends what join began.
func (c *Connection) part() {
	if c.perClient {
		c.Claim.Tally.Clients.Leave(c.client.Addr())
	}
}
