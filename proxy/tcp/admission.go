package tcp

import (
	"net/netip"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Admit makes the record of a client that was accepted, and counts it. False: it is not to be let in, and its
// record has ended. Who comes when there are as many clients as may be is refused at once: a client that waits in a queue does
// not know that it should turn to another node. Any goroutine may call Admit. In either case it takes no more than a few atomic
// additions, since this is asked between two accepts.
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
	case ofService > int64(cfg.MaxConnectionsPerService):
		c.TurnAway(traffic.ServiceLimit, nil)
	default:
		return true
	}
	return false
}
