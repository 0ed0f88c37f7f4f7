package portable

import (
	"context"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
)

// Engine is the engine in plain Go: package net, a goroutine for each direction of a connection
// and for each UDP session, pooled buffers. It is the one to read first, and it runs everywhere.
type Engine struct {
	engine.Base
	dialer  *dialer // of TCP endpoints
	roll    roll
	serving chan struct{} // closed while the engine serves. Rest puts an open one in its place; ports opened then accept once Resume closes it
}

// New makes an engine that has no port open yet. It starts no goroutine.
func New(cfg engine.Config, own *admit.OwnPorts) *Engine {
	e := &Engine{serving: make(chan struct{})}
	close(e.serving)
	e.Init(cfg, own)
	e.dialer = newDialer(cfg, e.Resolver, &e.Work)
	return e
}

// Drain waits for the relays and sessions that are left, and cuts them when ctx ends.
func (e *Engine) Drain(ctx context.Context) {
	stop := context.AfterFunc(ctx, e.Cut)
	defer stop()
	e.Work.Wait()
	e.Cut()
	e.Resolver.Close()
}
