package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// schoolName is the program of the school.
const schoolName = "school"

// schools are the school for each system, for an architecture. Students have machines of both.
func schools(arch string) (all []target) {
	for _, system := range []string{"linux", "darwin"} {
		all = append(all, target{name: schoolName, source: "./scripts/school", system: system, arch: arch})
	}
	return all
}

// targets are all programs, for each architecture.
func targets(arches []string) (all []target) {
	for _, arch := range arches {
		all = append(append(all, kubeProxy(arch)), schools(arch)...)
	}
	return all
}

// environment is what go builds the target with. It takes nothing from the caller's that would change the result.
func (t target) environment() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.system, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=")
}

// called is the name of what is built of a target.
func (r *release) called(t target) string {
	return fmt.Sprintf("%s-%s-%s-%s", t.name, r.version, t.system, t.arch)
}

// compile builds a static program, and returns its path. It leaves out the symbols, which only a debugger reads: the trace of a panic has its lines
// without them.
func (r *release) compile(t target, stage string) (string, error) {
	path := filepath.Join(stage, t.system, t.arch, t.name)
	flags := "-s -w"
	if t.stamped {
		flags += fmt.Sprintf(" -X main.gitVersion=%s -X main.gitCommit=%s -X main.gitTreeState=%s", r.describe, r.commit, r.tree)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", path, "-ldflags", flags, t.source)
	cmd.Dir, cmd.Env, cmd.Stderr = r.root, t.environment(), os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s for %s/%s: %w", t.name, t.system, t.arch, err)
	}
	return path, nil
}

// A program is what was built of a target.
type program struct {
	target
	content []byte
	modules []linked
}

// program builds a target, and writes its bill of materials.
func (r *release) program(t target, stage string) (*program, error) {
	path, err := r.compile(t, stage)
	if err != nil {
		return nil, err
	}
	p := &program{target: t}
	if p.content, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	if p.modules, err = r.modulesOf(t); err != nil {
		return nil, err
	}
	for _, m := range p.modules {
		if !slices.ContainsFunc(r.modules, func(other linked) bool { return other.path == m.path }) {
			r.modules = append(r.modules, m)
		}
	}
	if err := r.bill(p, path); err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	return p, nil
}

// notices returns the licenses of what a program is linked with, as a file of an archive.
func (p *program) notices(dir string) file {
	return file{path: dir + noticesName, mode: 0o644, content: notices(p.name, p.modules)}
}
