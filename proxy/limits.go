package proxy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/golang/glog"
)

// How the descriptor limit is shared out. Clients and listeners may have all of it but a reserve
// (see budget), and that is the hard limit: past it clients wait. The limits below are soft shares
// of it, so that connections reach theirs, and are refused with a reason, before descriptors run out and
// everybody waits:
//
//	UDP sessions      a quarter of the descriptor limit, at one descriptor each
//	TCP connections   what is left, at two descriptors each
//
// Listeners take theirs from what the others do not use, up to listenerShare. So a node with ten
// thousand ports still serves thousands of connections, as long as there are not as many sessions; and
// one with more ports than descriptors serves some of them.

// withLimits fills in the limits that were not set, for a descriptor limit.
func (c Config) withLimits(descriptors int) Config {
	if c.MaxUDPSessions == 0 {
		c.MaxUDPSessions = descriptors / 4
	}
	if c.MaxUDPSessionsPerService == 0 {
		c.MaxUDPSessionsPerService = max(1, c.MaxUDPSessions/2)
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = max(1, (clientShare(descriptors)-c.MaxUDPSessions)/2)
	}
	if c.MaxConnectionsPerService == 0 {
		c.MaxConnectionsPerService = max(1, c.MaxConnections/2) // as with sessions: a full service leaves the others as much as it has
	}
	if c.MaxNewUDPSessions == 0 {
		c.MaxNewUDPSessions = 5000
	}
	if c.MaxDialsPerEndpoint == 0 {
		c.MaxDialsPerEndpoint = 1024
	}
	return c
}

// Validate tells what in c cannot be: a limit that the descriptor limit of this process has no room for,
// a negative one, a range that holds nothing. It says what to do about it, and
// names each field as the flag that sets it.
func (c Config) Validate() error { return c.validate(descriptorLimit()) }

func (c Config) validate(descriptors int) error {
	var errs []error
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	share := clientShare(descriptors)
	cure := "raise the descriptor limit (ulimit -n, or LimitNOFILE= of a systemd unit), or set it to at most"
	for _, l := range []struct {
		flag        string
		value, each int
	}{
		{"-max_connections", c.MaxConnections, 2},
		{"-max_connections_per_service", c.MaxConnectionsPerService, 2},
		{"-max_udp_sessions", c.MaxUDPSessions, 1},
		{"-max_udp_sessions_per_service", c.MaxUDPSessionsPerService, 1},
		{"-max_new_udp_sessions", c.MaxNewUDPSessions, 0},
		{"-max_dials_per_endpoint", c.MaxDialsPerEndpoint, 0},
	} {
		switch {
		case l.value < 0:
			complain("%s=%d: it cannot be negative; 0 means the default", l.flag, l.value)
		case l.each > 0 && l.value > share/l.each:
			complain("%s=%d needs %d descriptors, and of the limit of %d clients can have %d: %s %d",
				l.flag, l.value, l.value*l.each, descriptors, share, cure, share/l.each)
		}
	}
	if needed := 2*c.MaxConnections + c.MaxUDPSessions; len(errs) == 0 && needed > share {
		complain("-max_connections=%d and -max_udp_sessions=%d together need %d descriptors, and of the limit of %d clients can have %d: %s %d and %d",
			c.MaxConnections, c.MaxUDPSessions, needed, descriptors, share, cure, (share-c.MaxUDPSessions)/2, c.MaxUDPSessions)
	}
	for _, ranges := range append(slices.Collect(maps.Values(c.NamespacePorts)), c.AllowedPorts) {
		for _, r := range ranges {
			if r.First == 0 || r.First > r.Last {
				complain("-allowed_ports: %d-%d is no range of ports", r.First, r.Last)
			}
		}
	}
	for _, p := range c.AllowedEndpoints {
		if !p.IsValid() || p.Addr().Is4In6() { // which would contain nothing
			complain("-allowed_endpoints: %v is no range of addresses; an IPv4 range is written as 10.0.0.0/8", p)
		}
	}
	if c.OnRemoval.After < 0 {
		complain("-on_removal: %v is no time after a removal", c.OnRemoval.After)
	}
	return errors.Join(errs...)
}

// connections counts the TCP clients of an engine, and bounds how many there may be. Who comes when
// there are as many is refused at once: a client that waits in a queue does not know that it should
// turn to another node.
type connections struct {
	max, perService int64
	ended           func(Ending) // Config.Ended

	lines *lines

	now atomic.Int64
}

func newConnections(cfg Config, lines *lines) *connections {
	return &connections{max: int64(cfg.MaxConnections), perService: int64(cfg.MaxConnectionsPerService), ended: cfg.Ended, lines: lines}
}

// admit enters a client that was accepted into the books. False: it is not to be let in, and its
// ending has been entered as well. In either case the books want nothing more than a few atomic
// additions, since this is asked between two accepts.
func (cs *connections) admit(owner *claim, port uint16, client netip.AddrPort) (connection, bool) {
	c := connection{all: cs, claim: owner, port: port, client: client, began: time.Now()}
	if v := glog.V(2); v {
		v.Infof("accepted %s for %s", client, owner.key)
	}
	now, ofService := cs.now.Add(1), owner.tally.active.Add(1)
	switch {
	case !owner.allows(client.Addr()):
		c.turnAway(SourceNotAllowed, nil)
	case now > cs.max:
		c.turnAway(ConnectionLimit, nil)
	case ofService > cs.perService:
		c.turnAway(ServiceLimit, nil)
	default:
		return c, true
	}
	return c, false
}

func (cs *connections) limit() Limit {
	return Limit{Name: "connections", Used: int(cs.now.Load()), Max: int(cs.max)}
}
