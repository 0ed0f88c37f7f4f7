package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
)

// A Base is what every engine is built on: the books, the limits, and how it all ends.
type Base struct {
	Cfg      Config
	Resolver *admit.Resolver
	Budget   *admit.Budget       // descriptors for clients
	Conns    *connections        // TCP clients in all
	Sessions *admit.SessionLimit // UDP sessions in all

	Newcomers *rate.Limiter // UDP sessions that begin
	Lines     lines
	Pauses    atomic.Uint64 // that they made

	Ctx  context.Context // ends when what is left is to be cut
	Cut  context.CancelFunc
	Work sync.WaitGroup // every goroutine of the engine
}

func (c *Base) Init(cfg Config, own *admit.OwnPorts) {
	c.Cfg = cfg
	c.Resolver = admit.NewResolver(own)
	c.Resolver.Allowed = cfg.AllowedEndpoints
	c.Budget = admit.NewBudget(sockopt.DescriptorLimit())
	c.Resolver.Budget = c.Budget
	c.Conns = newConnections(cfg, &c.Lines)
	c.Sessions = admit.NewSessionLimit(cfg.MaxUDPSessions, cfg.UDPTimeout)
	c.Newcomers = admit.NewPace(cfg.MaxNewUDPSessions)
	c.Ctx, c.Cut = context.WithCancel(context.Background())
}

// Listening opens the socket of one port, if there is a descriptor for it. Closing it gives the
// descriptor back, by releaseOfListener.
func (c *Base) Listening(open func() (Socket, error)) (Socket, error) {
	if err := c.Budget.TakeForListener(); err != nil {
		return nil, err
	}
	s, err := open()
	if err != nil {
		c.Budget.ReleaseOfListener()
		return nil, err
	}
	return s, nil
}

// An engine without loops has none that stands still, or takes long.
func (c *Base) Stalled() error               { return nil }
func (c *Base) TurnTimes() traffic.TurnTimes { return traffic.TurnTimes{} }

func (c *Base) Paused() uint64 { return c.Pauses.Load() }

func (c *Base) Limits() []traffic.Limit {
	return []traffic.Limit{
		c.Conns.limit(),
		{Name: "udp_sessions", Used: c.Sessions.Counted(), Max: c.Cfg.MaxUDPSessions},
		{Name: "descriptors", Used: int(c.Budget.Used.Load()), Max: c.Budget.Clients},
		{Name: "listeners", Used: int(c.Budget.Open.Load()), Max: c.Budget.Most},
	}
}
