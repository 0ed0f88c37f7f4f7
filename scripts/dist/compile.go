package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// A target is a program for a system and an architecture.
type target struct {
	name, source string
	system, arch string
	stamped      bool // it says of which version it is
}

func kubeProxy(arch string) target {
	return target{name: packageName, source: "./cmd/kube-proxy", system: "linux", arch: arch, stamped: true}
}

// schools are the school for each system, for an architecture. Students have machines of both.
func schools(arch string) (all []target) {
	for _, system := range []string{"linux", "darwin"} {
		all = append(all, target{name: "school", source: "./scripts/school", system: system, arch: arch})
	}
	return all
}

// called is the name of what is built of a target.
func (r *release) called(t target) string {
	return fmt.Sprintf("%s-%s-%s-%s", t.name, r.version, t.system, t.arch)
}

// compile builds a static program, and returns its path. It takes nothing from the environment that would change the
// result, and leaves out the symbols, which only a debugger reads: the trace of a panic has its lines without them.
func (r *release) compile(t target, stage string) (string, error) {
	path := filepath.Join(stage, t.system, t.arch, t.name)
	flags := "-s -w"
	if t.stamped {
		flags += fmt.Sprintf(" -X main.gitVersion=%s -X main.gitCommit=%s -X main.gitTreeState=%s", r.describe, r.commit, r.tree)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", path, "-ldflags", flags, t.source)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.system, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s for %s/%s: %w", t.name, t.system, t.arch, err)
	}
	return path, nil
}
