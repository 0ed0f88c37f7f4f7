package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// compile builds a static program for an architecture of Linux, and returns its path. It takes nothing from the environment that would change the
// result, and leaves out the symbols, which only a debugger reads: the trace of a panic has its lines without them.
func (r *release) compile(arch, stage string) (string, error) {
	path := filepath.Join(stage, arch, "kube-proxy")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", path,
		"-ldflags", fmt.Sprintf("-s -w -X main.gitVersion=%s -X main.gitCommit=%s -X main.gitTreeState=%s", r.describe, r.commit, r.tree), "./cmd/kube-proxy")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build for %s: %w", arch, err)
	}
	return path, nil
}
