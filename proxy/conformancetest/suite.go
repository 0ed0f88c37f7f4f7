package conformancetest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"

	_ "kubeproxy/proxy/enginetest" // logs to standard error
)

// Run runs every test of the suite for one engine, each as a subtest that has the name of its method.
func Run(t *testing.T, engine proxy.Kind) {
	s := reflect.ValueOf(suite{engine})
	for i := range s.NumMethod() {
		name := s.Type().Method(i).Name
		test, ok := s.Method(i).Interface().(func(*testing.T))
		if !ok || !strings.HasPrefix(name, "Test") {
			t.Errorf("method %s is no test", name)
			continue
		}
		t.Run(name, test)
	}
}

// A suite is the tests of one engine. Reflection finds its exported methods, so that no list can miss one.
type suite struct {
	engine proxy.Kind
}

// config returns the configuration that a test starts from, and may change.
func (s suite) config() proxy.Config {
	cfg := proxy.Config{Engine: s.engine, DrainTimeout: 2 * time.Second}
	cfg.BindAddress = proxytest.Loopback
	return cfg
}
