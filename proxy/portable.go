package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"kubeproxy/registry"
)

// portable is the engine in plain Go: package net, a goroutine for each direction of a connection
// and for each UDP session, pooled buffers. It is the one to read first, and it runs everywhere.
type portable struct {
	cfg      Config
	resolver *resolver
	dialer   *dialer       // of TCP endpoints
	budget   *budget       // descriptors for clients
	conns    *connections  // TCP clients in all
	sessions *sessionLimit // UDP sessions in all

	acceptErrors quieter       // of all TCP listeners
	pauses       atomic.Uint64 // that they made

	ctx  context.Context // ends when what is left is to be cut
	cut  context.CancelFunc
	work sync.WaitGroup // every goroutine of the engine
}

func newPortable(cfg Config, own *ownPorts) *portable {
	ctx, cut := context.WithCancel(context.Background())
	resolver := newResolver(own)
	resolver.allowed = cfg.AllowedEndpoints
	e := &portable{
		cfg:      cfg,
		resolver: resolver,
		budget:   newBudget(descriptorLimit()),
		conns:    newConnections(cfg),
		sessions: newSessionLimit(cfg.MaxUDPSessions, cfg.UDPTimeout),
		ctx:      ctx,
		cut:      cut,
	}
	e.dialer = newDialer(cfg, resolver, &e.work)
	return e
}

func (e *portable) listen(id portID, owner *atomic.Pointer[claim]) (socket, error) {
	addr := netip.AddrPortFrom(e.cfg.BindAddress, id.number)
	switch id.protocol {
	case registry.TCP:
		return e.listenTCP(addr, owner)
	case registry.UDP:
		return e.listenUDP(addr, owner)
	}
	return nil, fmt.Errorf("cannot carry %s", id.protocol)
}

func (e *portable) paused() uint64 { return e.pauses.Load() }

func (e *portable) limits() []Limit {
	return []Limit{
		e.conns.limit(),
		{Name: "udp_sessions", Used: e.sessions.counted(), Max: e.cfg.MaxUDPSessions},
		{Name: "descriptors", Used: int(e.budget.used.Load()), Max: e.budget.clients},
	}
}

func (e *portable) drain(ctx context.Context) {
	stop := context.AfterFunc(ctx, e.cut)
	defer stop()
	e.work.Wait()
	e.cut()
}
