package epoll_test

import (
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/conformancetest"
)

func TestConformance(t *testing.T) { conformancetest.Run(t, proxy.Epoll) }
