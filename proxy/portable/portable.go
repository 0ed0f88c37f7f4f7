package portable

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// Engine is the engine in plain Go: package net, a goroutine for each direction of a connection
// and for each UDP session, pooled buffers. It is the one to read first, and it runs everywhere.
type Engine struct {
	engine.Base
	dialer *dialer // of TCP endpoints
}

func New(cfg engine.Config, own *admit.OwnPorts) *Engine {
	e := new(Engine)
	e.Init(cfg, own)
	e.dialer = newDialer(cfg, e.Resolver, &e.Work)
	return e
}

func (e *Engine) Listen(id registry.NodePort, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	addr := netip.AddrPortFrom(e.Cfg.BindAddress, id.Number)
	switch id.Protocol {
	case registry.TCP:
		return e.Listening(func() (engine.Socket, error) { return e.listenTCP(addr, owner) })
	case registry.UDP:
		return e.Listening(func() (engine.Socket, error) { return e.listenUDP(addr, owner) })
	}
	return nil, fmt.Errorf("cannot carry %s", id.Protocol)
}

func (e *Engine) Drain(ctx context.Context) {
	stop := context.AfterFunc(ctx, e.Cut)
	defer stop()
	e.Work.Wait()
	e.Cut()
	e.Resolver.Close()
}
