package conformancetest

import (
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"

	_ "kubeproxy/proxy/enginetest" // logs to standard error
)

// Run runs every test of the suite for one engine, each as a subtest that has the name of its method.
func Run(t *testing.T, engine proxy.Kind) { proxytest.RunMethods(t, suite{engine}) }

// A suite is the tests of one engine, each a method.
type suite struct {
	engine proxy.Kind
}

// config returns the configuration that a test starts from, and may change. A session that a test leaves behind is cut soon: otherwise each such
// test would wait until it has been silent for udp.DrainSilence.
func (s suite) config() proxy.Config {
	cfg := proxy.Config{Engine: s.engine, DrainTimeout: 100 * time.Millisecond}
	cfg.BindAddress = proxytest.Loopback
	return cfg
}
