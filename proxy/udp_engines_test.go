//go:build linux

package proxy

import (
	"net/netip"
	"sync"
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll"
	"kubeproxy/proxy/portable"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A udpEngine is either engine, with its name look-ups, limits and budget in reach.
type udpEngine struct {
	engine.Engine
	*engine.Base
}

// onBothEngines runs a test of UDP sessions once for each engine.
func onBothEngines(t *testing.T, cfg engine.Config, test func(t *testing.T, e *udpEngine)) {
	t.Helper()
	for _, kind := range []Kind{Portable, Epoll} {
		t.Run(kind.String(), func(t *testing.T) {
			test(t, newUDPEngineOf(t, kind, cfg))
		})
	}
}

// newUDPEngineOf returns an engine that ends with the test, and leaves nothing behind.
func newUDPEngineOf(t testing.TB, kind Kind, cfg engine.Config) *udpEngine {
	t.Helper()
	proxytest.NothingLeaks(t)
	if !cfg.BindAddress.IsValid() {
		cfg.BindAddress = proxytest.Loopback
	}
	cfg = cfg.WithDefaults()
	own := admit.NewOwnPorts(cfg.BindAddress)
	e := new(udpEngine)
	if kind == Epoll {
		l := epoll.New(cfg, own)
		e.Engine, e.Base = l, &l.Base
	} else {
		p := portable.New(cfg, own)
		e.Engine, e.Base = p, &p.Base
	}
	t.Cleanup(func() {
		e.Cut()
		e.Engine.Drain(t.Context())
		for _, l := range e.Engine.Limits() {
			if l.Used != 0 {
				t.Errorf("%d %s are still counted", l.Used, l.Name)
			}
		}
		if got := e.Sessions.WaitingBytes.Load(); got != 0 {
			t.Errorf("%d bytes are taken for waiting", got)
		}
	})
	return e
}

// A servedPort is one open UDP port of either engine, and the service that owns it.
type servedPort struct {
	engine.Socket
	enginetest.UDPRecord
	close func() // safe twice
}

// serve opens a port of e for a service with these endpoints.
func (e *udpEngine) serve(t testing.TB, endpoints ...registry.Addr) *servedPort {
	t.Helper()
	s := new(servedPort)
	s.Init(endpoints...)
	port := proxytest.FreePort(t)
	opened, err := e.Listen(enginetest.UDPPort(port), &s.Ownership)
	if err != nil {
		t.Fatal(err)
	}
	s.Socket, s.close = opened, sync.OnceFunc(opened.Close)
	t.Cleanup(s.close)
	e.Resolver.Own.Add(enginetest.UDPPort(port))
	s.Addr = netip.AddrPortFrom(e.Cfg.BindAddress, port)
	return s
}
