//go:build !linux

package proxy

import (
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/portable"
)

// newEngine makes the engine for this system.
func newEngine(cfg Config, own *admit.OwnPorts) engine.Engine { return portable.New(cfg.Config, own) }

// engineProblem returns why the engine that cfg asks for cannot be used on this system.
func engineProblem(Kind) error { return nil }
