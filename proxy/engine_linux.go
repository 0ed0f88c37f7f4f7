package proxy

import (
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll"
	"kubeproxy/proxy/portable"
)

// newEngine makes the engine that cfg asks for.
func newEngine(cfg Config, own *admit.OwnPorts) engine.Engine {
	if cfg.Engine == Portable {
		return portable.New(cfg.Config, own)
	}
	return epoll.New(cfg.Config, own)
}
