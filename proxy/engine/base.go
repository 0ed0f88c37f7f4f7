package engine

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Base is what every engine is built on: counters, limits, and the end of all connections.
type Base struct {
	Cfg      Config
	Resolver *admit.Resolver
	Budget   *admit.Budget       // descriptors for clients
	Sessions *admit.SessionLimit // UDP sessions in all

	Connections atomic.Int64  // of TCP clients, in all
	fair        fairness      // of services towards one another, when these are nearly used up
	Newcomers   *rate.Limiter // UDP sessions that begin
	Lines       lines
	Pauses      atomic.Uint64 // that accepting made because it failed

	inherited map[registry.NodePort]int // sockets of a predecessor's listeners that Listen has not taken yet

	Ctx  context.Context // ends when what is left is to be cut
	Cut  context.CancelFunc
	Work sync.WaitGroup // every goroutine of the engine
}

// Init prepares the base of an engine, before its first port is opened. cfg has its defaults filled in; own knows the ports of this
// proxy, which no endpoint may be.
func (c *Base) Init(cfg Config, own *admit.OwnPorts) {
	c.Cfg = cfg
	c.Resolver = admit.NewResolver(own)
	c.Resolver.Allowed = cfg.AllowedEndpoints
	c.Budget = admit.NewBudget(sockopt.DescriptorLimit())
	c.Resolver.Budget = c.Budget
	c.Sessions = admit.NewSessionLimit(cfg.MaxUDPSessions)
	c.Newcomers = admit.NewPace(cfg.MaxNewUDPSessions)
	c.Ctx, c.Cut = context.WithCancel(context.Background())
}

// An Open opens the socket of a port at an address, for its owner.
type Open func(at netip.AddrPort, owner *atomic.Pointer[Claim]) (Socket, error)

// ListenBy opens the socket of one port, by tcp or udp as its protocol wants, if there is a descriptor for it. Closing
// the socket has to give the descriptor back: see [admit.Budget.ReleaseOfListener].
func (c *Base) ListenBy(id registry.NodePort, owner *atomic.Pointer[Claim], tcp, udp Open) (Socket, error) {
	open := tcp
	switch id.Protocol {
	case registry.TCP:
	case registry.UDP:
		open = udp
	default:
		return nil, fmt.Errorf("cannot carry %s", id.Protocol)
	}
	if err := c.Budget.TakeForListener(); err != nil {
		return nil, err
	}
	s, err := open(netip.AddrPortFrom(c.Cfg.BindAddress, id.Number), owner)
	if err != nil {
		c.Budget.ReleaseOfListener()
		return nil, err
	}
	return s, nil
}

// MayConnect reports whether a service that has so many TCP connections may have one more, while the node has so many. Any goroutine may call it.
func (c *Base) MayConnect(ofService, ofNode int64) bool {
	free := int64(c.Cfg.MaxConnections) - int64(c.Cfg.MaxConnections)/lastShare
	return ofNode < free || ofService == 0 || c.Cfg.EachActive == nil || c.fair.isBelow(ofService, free, c.Cfg.EachActive)
}

// Addresses returns the resolver of the engine.
func (c *Base) Addresses() *admit.Resolver { return c.Resolver }

// Stalled returns nil: an engine without loops has none that stands still.
func (c *Base) Stalled() error { return nil }

// TurnTimes returns none: an engine without loops has no turns.
func (c *Base) TurnTimes() traffic.TurnTimes { return traffic.TurnTimes{} }

// Paused counts the pauses that accepting made because it failed.
func (c *Base) Paused() uint64 { return c.Pauses.Load() }

// Limits returns how much is used of everything that is bounded: connections, UDP sessions, descriptors, listeners.
func (c *Base) Limits() []traffic.Limit {
	return []traffic.Limit{
		{Name: "connections", Used: int(c.Connections.Load()), Max: c.Cfg.MaxConnections},
		{Name: "udp_sessions", Used: c.Sessions.Counted(), Max: c.Cfg.MaxUDPSessions},
		{Name: "descriptors", Used: int(c.Budget.Used.Load()), Max: c.Budget.Clients},
		{Name: "listeners", Used: int(c.Budget.Open.Load()), Max: c.Budget.Most},
	}
}
