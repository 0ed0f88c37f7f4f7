package portable_test

import (
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/conformancetest"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/portable"
)

func TestConformance(t *testing.T) { conformancetest.Run(t, proxy.Portable) }

func TestEngine(t *testing.T) {
	enginetest.Run(t, func(cfg engine.Config, own *admit.OwnPorts) (engine.Engine, *engine.Base) {
		e := portable.New(cfg, own)
		return e, &e.Base
	})
}
