package epoll

import (
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/traffic"
)

// How others look at all that the loops carry: some places in each step, which is one request of a loop. Events are handled in between.

// ofSessions is the bit of a place that is one of sessions. A place fits into an int of 32 bits.
const ofSessions = 1 << 30

// step has one loop deal with a few places: those of its connections first, and then those of its sessions if they are wanted. The number of the
// loop is above the bits of the place. Either function returns the next place, which is negative if there is none.
func (e *Engine) step(from int64, sessions bool, ofConns, ofTheirSessions func(l *loop, place int) (next int)) (next int64) {
	loops := e.running()
	number, place := int(from>>32), int(from&(ofSessions<<1-1))
	if number >= len(loops) {
		return -1
	}
	l := loops[number]
	ran := l.requests.Call(func() {
		if place&ofSessions == 0 {
			place = ofConns(l, place)
		} else if place = ofTheirSessions(l, place&^ofSessions); place >= 0 {
			place |= ofSessions
		}
	})
	switch {
	case ran && place >= 0:
	case ran && sessions && from&ofSessions == 0:
		place = ofSessions
	default:
		number, place = number+1, 0
	}
	return int64(number)<<32 | int64(place)
}

// Clients passes the clients in a few places of a loop to each.
func (e *Engine) Clients(from int64, of *traffic.Selection, each func(*traffic.Client) (end bool)) (next int64) {
	return e.step(from, true, func(l *loop, place int) (next int) {
		return l.clients(place, of, each)
	}, func(l *loop, place int) (next int) {
		return l.sessions.Clients(place, of, each)
	})
}

// clients passes the connections in a few places to each.
func (l *loop) clients(from int, of *traffic.Selection, each func(*traffic.Client) (end bool)) (next int) {
	conns, next := l.conns.Some(from, reactor.ListedAStep)
	for c := range conns {
		now := c.Account.Now()
		if !of.Has(&now) {
			continue
		}
		c.Describe(&now)
		if each(&now) {
			l.end(c, traffic.Killed)
		}
	}
	return next
}

// end ends c.
func (l *loop) end(c *relay.Conn, why traffic.Reason) {
	if c.Phase() == relay.Dialling {
		l.dialler.turnAway(c, why)
	} else {
		l.relays.End(c, why)
	}
}
