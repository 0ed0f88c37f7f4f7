package epoll_test

import (
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/conformancetest"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll"
)

func TestConformance(t *testing.T) { conformancetest.Run(t, proxy.Epoll) }

func TestEngine(t *testing.T) {
	enginetest.Run(t, func(cfg engine.Config, own *admit.OwnPorts) (engine.Engine, *engine.Base) {
		e := epoll.New(cfg, own)
		return e, &e.Base
	})
}
