package proxy

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/golang/glog"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll"
	"kubeproxy/proxy/portable"
)

// newEngine makes the engine that cfg asks for.
func newEngine(cfg Config, own *admit.OwnPorts) engine.Engine {
	switch cfg.Engine {
	case Portable:
		return portable.New(cfg.Config, own)
	case Epoll:
		return epoll.New(cfg.Config, own)
	}
	e, err := epoll.NewRing(cfg.Config, own)
	if err != nil {
		glog.Infof("the engine is epoll, for the ring engine cannot be used here: %v", err)
		return epoll.New(cfg.Config, own)
	}
	return e
}

// engineProblem returns why the engine that cfg asks for cannot be used on this system. That memory is lacking is no such reason: a predecessor
// may have it, and a take-over must not fail for that. See newEngine.
func engineProblem(k Kind) error {
	if k != Ring {
		return nil
	}
	if err := epoll.TryRing(); err != nil && !errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("-engine=ring cannot be used here: %w (it needs Linux 6.1, and that neither seccomp nor the sysctl kernel.io_uring_disabled forbid io_uring); choose -engine=auto", err)
	}
	return nil
}
