package proxytest

import (
	"reflect"
	"strings"
	"testing"
)

// RunMethods runs every exported method of suite as a subtest that has its name. Reflection finds them, so that no list can miss one.
// A method that is no test fails.
//
// Tests count what their process has open, so that no two may run in one process at a time; but most of their time they wait. On Linux, as many
// processes as -parallel allows share them. They run in this process, one after the other, if -run names some of them, with -parallel=1, and
// for a coverage profile.
func RunMethods(t *testing.T, suite any) {
	s := reflect.ValueOf(suite)
	var names []string
	tests := make(map[string]func(*testing.T))
	for i := range s.NumMethod() {
		name := s.Type().Method(i).Name
		test, ok := s.Method(i).Interface().(func(*testing.T))
		if !ok || !strings.HasPrefix(name, "Test") {
			t.Errorf("method %s is no test", name)
			continue
		}
		names, tests[name] = append(names, name), test
	}
	if !share(t, names, tests) {
		for _, name := range names {
			t.Run(name, tests[name])
		}
	}
}
