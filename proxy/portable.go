package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"kubeproxy/registry"
)

// portable is the engine in plain Go: package net, a goroutine for each direction of a connection
// and for each UDP session, pooled buffers. It is the one to read first, and it runs everywhere.
type portable struct {
	chassis
	dialer *dialer // of TCP endpoints
}

func newPortable(cfg Config, own *ownPorts) *portable {
	e := new(portable)
	e.init(cfg, own)
	e.dialer = newDialer(cfg, e.resolver, &e.work)
	return e
}

func (e *portable) listen(id portID, owner *atomic.Pointer[claim]) (socket, error) {
	addr := netip.AddrPortFrom(e.cfg.BindAddress, id.number)
	switch id.protocol {
	case registry.TCP:
		return e.listening(func() (socket, error) { return e.listenTCP(addr, owner) })
	case registry.UDP:
		return e.listening(func() (socket, error) { return e.listenUDP(addr, owner) })
	}
	return nil, fmt.Errorf("cannot carry %s", id.protocol)
}

func (e *portable) drain(ctx context.Context) {
	stop := context.AfterFunc(ctx, e.cut)
	defer stop()
	e.work.Wait()
	e.cut()
	e.resolver.close()
}
