package proxytest

import (
	"reflect"
	"strings"
	"testing"
)

// RunMethods runs every exported method of suite as a subtest that has its name. Reflection finds them, so that no list can miss one.
// A method that is no test fails.
func RunMethods(t *testing.T, suite any) {
	s := reflect.ValueOf(suite)
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
