package proxy

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// A chassis is what every engine is built on: the books, the limits, and how it all ends.
type chassis struct {
	cfg      Config
	resolver *resolver
	budget   *budget       // descriptors for clients
	conns    *connections  // TCP clients in all
	sessions *sessionLimit // UDP sessions in all

	newcomers *rate.Limiter // UDP sessions that begin
	lines     lines
	pauses    atomic.Uint64 // that they made

	ctx  context.Context // ends when what is left is to be cut
	cut  context.CancelFunc
	work sync.WaitGroup // every goroutine of the engine
}

func (c *chassis) init(cfg Config, own *ownPorts) {
	c.cfg = cfg
	c.resolver = newResolver(own)
	c.resolver.allowed = cfg.AllowedEndpoints
	c.budget = newBudget(descriptorLimit())
	c.resolver.budget = c.budget
	c.conns = newConnections(cfg, &c.lines)
	c.sessions = newSessionLimit(cfg.MaxUDPSessions, cfg.UDPTimeout)
	c.newcomers = newPace(cfg.MaxNewUDPSessions)
	c.ctx, c.cut = context.WithCancel(context.Background())
}

// listening opens the socket of one port, if there is a descriptor for it. Closing it gives the
// descriptor back, by releaseOfListener.
func (c *chassis) listening(open func() (socket, error)) (socket, error) {
	if err := c.budget.takeForListener(); err != nil {
		return nil, err
	}
	s, err := open()
	if err != nil {
		c.budget.releaseOfListener()
		return nil, err
	}
	return s, nil
}

// An engine without loops has none that stands still, or takes long.
func (c *chassis) stalled() error       { return nil }
func (c *chassis) turnTimes() TurnTimes { return TurnTimes{} }

func (c *chassis) paused() uint64 { return c.pauses.Load() }

func (c *chassis) limits() []Limit {
	return []Limit{
		c.conns.limit(),
		{Name: "udp_sessions", Used: c.sessions.counted(), Max: c.cfg.MaxUDPSessions},
		{Name: "descriptors", Used: int(c.budget.used.Load()), Max: c.budget.clients},
		{Name: "listeners", Used: int(c.budget.open.Load()), Max: c.budget.most},
	}
}
