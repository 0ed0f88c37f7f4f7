package engine

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/traffic"
)

// connections counts the TCP clients of an engine, and bounds how many there may be. Who comes when
// there are as many is refused at once: a client that waits in a queue does not know that it should
// turn to another node.
type connections struct {
	max, perService int64
	Ended           func(traffic.Ending) // Config.Ended

	lines *lines

	now atomic.Int64
}

func newConnections(cfg Config, lines *lines) *connections {
	return &connections{max: int64(cfg.MaxConnections), perService: int64(cfg.MaxConnectionsPerService), Ended: cfg.Ended, lines: lines}
}

// Admit enters a client that was accepted into the books. False: it is not to be let in, and its
// ending has been entered as well. In either case the books want nothing more than a few atomic
// additions, since this is asked between two accepts.
func (cs *connections) Admit(owner *Claim, port uint16, client netip.AddrPort) (Connection, bool) {
	c := Connection{all: cs, Claim: owner, port: port, client: client, began: time.Now()}
	if v := glog.V(2); v {
		v.Infof("accepted %s for %s", client, owner.Key)
	}
	now, ofService := cs.now.Add(1), owner.Tally.Active.Add(1)
	switch {
	case !owner.Allows(client.Addr()):
		c.TurnAway(traffic.SourceNotAllowed, nil)
	case now > cs.max:
		c.TurnAway(traffic.ConnectionLimit, nil)
	case ofService > cs.perService:
		c.TurnAway(traffic.ServiceLimit, nil)
	default:
		return c, true
	}
	return c, false
}

func (cs *connections) limit() traffic.Limit {
	return traffic.Limit{Name: "connections", Used: int(cs.now.Load()), Max: int(cs.max)}
}
