//go:build linux

// Package measuretest has what the tests of several measurements need.
package measuretest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kubeproxy/scripts/internal/measure"
)

// KubeProxy builds the program that is measured, and returns its file.
func KubeProxy(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kube-proxy")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, "kubeproxy/cmd/kube-proxy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
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
