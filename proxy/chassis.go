package proxy

import (
	"context"
	"sync"
	"sync/atomic"
)

// A chassis is what every engine is built on: the books, the limits, and how it all ends.
type chassis struct {
	cfg      Config
	resolver *resolver
	budget   *budget       // descriptors for clients
	conns    *connections  // TCP clients in all
	sessions *sessionLimit // UDP sessions in all

	newcomers    *pace         // UDP sessions that begin
	acceptErrors quieter       // of all TCP ports
	pauses       atomic.Uint64 // that they made

	ctx  context.Context // ends when what is left is to be cut
	cut  context.CancelFunc
	work sync.WaitGroup // every goroutine of the engine
}

func (c *chassis) init(cfg Config, own *ownPorts) {
	c.cfg = cfg
	c.resolver = newResolver(own)
	c.resolver.allowed = cfg.AllowedEndpoints
	c.budget = newBudget(descriptorLimit())
	c.conns = newConnections(cfg)
	c.sessions = newSessionLimit(cfg.MaxUDPSessions, cfg.UDPTimeout)
	c.newcomers = newPace(cfg.MaxNewUDPSessions)
	c.ctx, c.cut = context.WithCancel(context.Background())
}

func (c *chassis) paused() uint64 { return c.pauses.Load() }

func (c *chassis) limits() []Limit {
	return []Limit{
		c.conns.limit(),
		{Name: "udp_sessions", Used: c.sessions.counted(), Max: c.cfg.MaxUDPSessions},
		{Name: "descriptors", Used: int(c.budget.used.Load()), Max: c.budget.clients},
	}
}
