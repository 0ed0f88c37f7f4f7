//go:build linux

// Package measuretest has what the tests of several measurements need.
package measuretest

import (
	"encoding/json"
	"os"
	"testing"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/measure"
)

// KubeProxy builds the program that is measured, and returns its file.
func KubeProxy(t testing.TB) string {
	t.Helper()
	file, err := process.KubeProxyBinary()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// ReadReport reads what -json has written.
func ReadReport(t testing.TB, file string) (r measure.Report) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}
