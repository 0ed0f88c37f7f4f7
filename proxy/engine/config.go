package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
)

// A Config says where an engine listens, how patient it is, and how much it holds at most. A zero duration or count means the
// default.
type Config struct {
	BindAddress netip.Addr // every listener binds to it; 0.0.0.0 binds to all addresses of both families, as in v0.4

	DialTimeout       time.Duration // for one attempt to reach one endpoint; default 1s
	DialTotalTimeout  time.Duration // for all attempts on behalf of one client; default 5s
	HalfClosedTimeout time.Duration // how long a connection may be silent once one side has finished; default 60s
	UDPTimeout        time.Duration // how long a UDP session may be silent; default 60s
	TCPKeepAlive      time.Duration // between keepalive probes, of which three may go unanswered; default 15s

	MaxConnections           int // TCP, in all; default: what the descriptor limit leaves
	MaxConnectionsPerService int // TCP, for one port of one service; default: half of MaxConnections
	MaxDialsPerEndpoint      int // TCP, under way at one time; default 1024
	MaxUDPSessions           int // in all; default: a quarter of the descriptor limit
	MaxUDPSessionsPerService int // for one port of one service; default: half of MaxUDPSessions
	MaxNewUDPSessions        int // in a second, in all; default 5000

	AllowedEndpoints []netip.Prefix // where endpoints may be; none: anywhere

	OnRemoval balance.Removal      // what becomes of TCP connections whose endpoint or service is removed
	Ended     func(traffic.Ending) // called at the end of each TCP connection and UDP session; must not block; may be nil
}

// WithDefaults fills in what was not set.
func (c Config) WithDefaults() Config {
	if !c.BindAddress.IsValid() {
		c.BindAddress = netip.IPv4Unspecified()
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&c.DialTimeout, time.Second},
		{&c.DialTotalTimeout, 5 * time.Second},
		{&c.HalfClosedTimeout, 60 * time.Second},
		{&c.UDPTimeout, 60 * time.Second},
		{&c.TCPKeepAlive, 15 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	return c.withLimits(sockopt.DescriptorLimit())
}

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
		c.MaxConnections = max(1, (admit.ClientShare(descriptors)-c.MaxUDPSessions)/2)
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

// Problems returns what in c cannot be: a limit that this process has no descriptors for, a negative one, a range that holds
// nothing. It says what to do about it, and names each field as the flag that sets it.
func (c Config) Problems() error { return c.problemsWithin(sockopt.DescriptorLimit()) }

// problemsWithin is Problems for a descriptor limit.
func (c Config) problemsWithin(descriptors int) error {
	var errs []error
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	share := admit.ClientShare(descriptors)
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
