package ring_test

import (
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/conformancetest"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll"
)

// The engine with a ring has its conformance tests here, for they wait more than they compute: so they run beside those of the engine without.

func TestConformance(t *testing.T) { conformancetest.Run(t, proxy.Ring) }

func TestEngine(t *testing.T) {
	enginetest.Run(t, func(cfg engine.Config, own *admit.OwnPorts) (engine.Engine, *engine.Base) {
		e, err := epoll.NewRing(cfg, own)
		enginetest.Must(t, err)
		return e, &e.Base
	})
}
