package engine

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// At is where a listener's socket is bound to.
func (c *Config) At(id registry.ListenerID) netip.AddrPort {
	if id.Addr.IsValid() {
		return netip.AddrPortFrom(id.Addr, id.Number)
	}
	return netip.AddrPortFrom(c.BindAddress, id.Number)
}

// A Config says where an engine listens, how long it waits, and how much it holds at most. A zero field means the default: that of
// [Defaults], or a share of the descriptor limit.
type Config struct {
	BindAddress netip.Addr // every listener binds to it; 0.0.0.0 binds to all addresses of both families, as in v0.4

	DialTimeout       time.Duration // for one attempt to reach one endpoint; default: at most DialTotalTimeout
	DialTotalTimeout  time.Duration // for all attempts on behalf of one client
	HalfClosedTimeout time.Duration // silence allowed once one side of a connection has finished or died
	IdleTimeout       time.Duration // silence after which a TCP connection ends; 0: none
	UDPTimeout        time.Duration // silence after which a UDP session ends
	TCPKeepAlive      time.Duration // between keepalive probes; after three without an answer the connection is dead
	WaitAtLimit       time.Duration // for which TCP clients wait in the kernel's queue at a limit, before they are refused

	MaxConnections           int // TCP, in all; default: what the descriptor limit leaves
	MaxConnectionsPerService int // TCP, for one port of one service; default: MaxConnections, and of the last of these a share: see Base.MayConnect
	MaxConnectionsPerClient  int // TCP connections, or UDP sessions, of one client address at one port of one service; 0: no limit of its own
	MaxDialsPerEndpoint      int // TCP, at one time
	MaxUDPSessions           int // in all; default: a quarter of the descriptor limit
	MaxUDPSessionsPerService int // for one port of one service; default: half of MaxUDPSessions
	MaxNewUDPSessions        int // in a second, in all

	Balance          registry.Balance // the algorithm of services that name none
	Checks           checks.Settings  // of endpoints while no client comes
	AllowedEndpoints []netip.Prefix   // where endpoints may be; none: anywhere
	Node             registry.Node    // this one: clients may be given endpoints near it

	// Other proxies: TCP connections from there have to begin with a PROXY header, which says who the client is. From elsewhere such a
	// header is like any other bytes of a client.
	ProxyProtocolFrom []netip.Prefix

	EachActive iter.Seq[int64] // how many TCP connections each port of each service has that has some; nil: nobody asks for a share

	OnRemoval removal.Policy       // what becomes of TCP connections whose endpoint or service is removed
	Ended     func(traffic.Ending) // called at the end of each TCP connection and UDP session; must not block; may be nil
	Began     func(traffic.Ending) // called when each of them is given its first endpoint, with what is known of it by then, and no reason; must not block; may be nil
	NoteLocal bool                 // both are told the proxy's own address towards the endpoint. With package epoll that costs a system call each
}

// Defaults returns the defaults that are the same on every machine.
func Defaults() Config {
	return Config{
		BindAddress:         netip.IPv4Unspecified(),
		DialTimeout:         4 * time.Second, // Linux sends a SYN that was lost again after 1 s, and that after 2 s more at the latest
		DialTotalTimeout:    5 * time.Second,
		HalfClosedTimeout:   60 * time.Second,
		UDPTimeout:          60 * time.Second,
		TCPKeepAlive:        15 * time.Second,
		WaitAtLimit:         50 * time.Millisecond,
		MaxDialsPerEndpoint: 1024,
		MaxNewUDPSessions:   5000,
		Balance:             registry.RoundRobin,
		Checks:              checks.Defaults(),
	}
}

// WithDefaults replaces each zero field by its default.
func (c Config) WithDefaults() Config {
	d := Defaults()
	c.BindAddress = cmp.Or(c.BindAddress, d.BindAddress)
	c.DialTotalTimeout = cmp.Or(c.DialTotalTimeout, d.DialTotalTimeout)
	c.DialTimeout = cmp.Or(c.DialTimeout, min(d.DialTimeout, c.DialTotalTimeout))
	c.HalfClosedTimeout = cmp.Or(c.HalfClosedTimeout, d.HalfClosedTimeout)
	c.UDPTimeout = cmp.Or(c.UDPTimeout, d.UDPTimeout)
	c.TCPKeepAlive = cmp.Or(c.TCPKeepAlive, d.TCPKeepAlive)
	c.WaitAtLimit = cmp.Or(c.WaitAtLimit, d.WaitAtLimit)
	c.MaxDialsPerEndpoint = cmp.Or(c.MaxDialsPerEndpoint, d.MaxDialsPerEndpoint)
	c.MaxNewUDPSessions = cmp.Or(c.MaxNewUDPSessions, d.MaxNewUDPSessions)
	c.Balance = cmp.Or(c.Balance, d.Balance)
	return c.withLimits(sockopt.DescriptorLimit())
}

// How the descriptor limit is shared. Clients and listeners may have all of it except a reserve (admit.Budget). That is the hard limit:
// beyond it clients wait. The limits below are soft shares of it, so a client above one is refused with a reason before descriptors run
// out and all clients wait:
//
//	UDP sessions      a quarter of the descriptor limit, at one descriptor each
//	TCP connections   what is left, at two descriptors each
//
// Listeners take what the others leave, up to admit.Budget.Most. So a node with 10,000 ports still serves thousands of connections, if
// there are few sessions. A node with more ports than descriptors serves some of them.

// withLimits replaces the zero limits that are shares of the descriptor limit.
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
		c.MaxConnectionsPerService = c.MaxConnections
	}
	return c
}

// Problems reports impossible values: a limit that this process has no descriptors for, a negative one, a range that contains nothing.
// The error names each field by its flag, and says what to do.
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
		{"-max_connections_per_client", c.MaxConnectionsPerClient, 0},
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
	for _, ranges := range []struct {
		flag string
		all  []netip.Prefix
	}{{"-allowed_endpoints", c.AllowedEndpoints}, {"-proxy_protocol_from", c.ProxyProtocolFrom}} {
		for _, p := range ranges.all {
			if !p.IsValid() || p.Addr().Is4In6() { // which would contain nothing
				complain("%s: %v is no range of addresses; an IPv4 range is written as 10.0.0.0/8", ranges.flag, p)
			}
		}
	}
	if c.OnRemoval.After < 0 {
		complain("-on_removal: %v is no time after a removal", c.OnRemoval.After)
	}
	return errors.Join(errs...)
}
