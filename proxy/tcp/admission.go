package tcp

import (
	"net/netip"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
)

// Admit makes the record of a client that was accepted, and counts it. False: it is not to be let in, and its
// record has ended. Who comes when there are as many clients as may be is refused at once: a client that waits in a queue does
// not know that it should turn to another node. Any goroutine may call Admit. In either case it takes no more than a few atomic
// additions, since this is asked between two accepts.
func Admit(base *engine.Base, owner *engine.Claim, port uint16, client netip.AddrPort) (Connection, bool) {
	c := Connection{base: base, Claim: owner, port: port, client: client, began: time.Now()}
	if v := glog.V(2); v {
		v.Infof("accepted %s for %s", client, owner.Key)
	}
	now, ofService := base.Connections.Add(1), owner.Tally.Begin()
	switch {
	case !owner.Allows(client.Addr()):
		c.TurnAway(traffic.SourceNotAllowed, nil)
	case now > int64(base.Cfg.MaxConnections):
		c.TurnAway(traffic.ConnectionLimit, nil)
	case ofService > int64(base.Cfg.MaxConnectionsPerService):
		c.TurnAway(traffic.ServiceLimit, nil)
	default:
		return c, true
	}
	return c, false
}
