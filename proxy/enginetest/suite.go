package enginetest

import (
	"net/netip"
	"sync"
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A New makes an engine and tells what it is built on.
type New func(cfg engine.Config, own *admit.OwnPorts) (engine.Engine, *engine.Base)

// Run runs every test of one engine, each as a subtest that has the name of its method. These tests look at what engines have in
// common: limits, budget, name look-ups. What only clients and endpoints see is tested by package conformancetest.
func Run(t *testing.T, engine New) { proxytest.RunMethods(t, suite{engine}) }

// A suite is the tests of one engine, each a method.
type suite struct{ new New }

// An Engine under test, with its name look-ups, limits and budget in reach.
type Engine struct {
	engine.Engine
	*engine.Base
}

func (u suite) newUDP(t testing.TB, cfg engine.Config) *Engine { return Start(t, u.new, cfg) }

// Start returns an engine that ends with the test, and leaves nothing behind. It binds to 127.0.0.1 unless cfg says otherwise.
func Start(t testing.TB, create New, cfg engine.Config) *Engine {
	t.Helper()
	proxytest.NothingLeaks(t)
	if !cfg.BindAddress.IsValid() {
		cfg.BindAddress = proxytest.Loopback
	}
	cfg = cfg.WithDefaults()
	e := new(Engine)
	e.Engine, e.Base = create(cfg, admit.NewOwnPorts(cfg.BindAddress))
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

// A ServedPort is one open UDP port of an engine, and the service that owns it.
type ServedPort struct {
	engine.Socket
	UDPRecord
	close func() // safe twice
}

// Serve opens a UDP port of e for a service with these endpoints.
func (e *Engine) Serve(t testing.TB, endpoints ...registry.Addr) *ServedPort {
	t.Helper()
	s := new(ServedPort)
	s.Init(endpoints...)
	port := proxytest.FreePort(t)
	opened, err := e.Listen(UDPPort(port), &s.Ownership)
	if err != nil {
		t.Fatal(err)
	}
	e.Resolver.Own.Add(UDPPort(port))
	s.Socket, s.close = opened, sync.OnceFunc(func() {
		opened.Close()
		e.Resolver.Own.Remove(UDPPort(port)) // an endpoint may have it next
	})
	t.Cleanup(s.close)
	s.Addr = netip.AddrPortFrom(e.Cfg.BindAddress, port)
	return s
}

// newTCP returns an engine, and what opens a TCP port of it for a service with some endpoints.
func (u suite) newTCP(t *testing.T, cfg engine.Config) (*engine.Base, func(endpoints ...registry.Addr) netip.AddrPort) {
	t.Helper()
	proxytest.NothingLeaks(t)
	cfg.BindAddress = proxytest.Loopback
	e, base := u.new(cfg.WithDefaults(), admit.NewOwnPorts(cfg.BindAddress))
	return base, func(endpoints ...registry.Addr) netip.AddrPort {
		t.Helper()
		port := proxytest.FreePort(t)
		s, err := e.Listen(TCPPort(port), OwnerOf(NewRotation(endpoints...)))
		Must(t, err)
		t.Cleanup(func() {
			s.Close()
			e.Drain(t.Context())
			if used := base.Budget.Used.Load(); used != 0 {
				t.Errorf("in the end %d descriptors are taken", used)
			}
		})
		return proxytest.On(port)
	}
}
