package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinkerStampsTheVersion builds the program as the Makefile does.
func TestLinkerStampsTheVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kube-proxy")
	build := exec.Command("go", "build", "-o", path,
		"-ldflags", "-s -w -X main.gitVersion=v7.8.9-rc.1 -X main.gitCommit=cafe -X main.gitTreeState=clean", ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for flag, want := range map[string]string{
		"-version":     "kube-proxy v7.8.9-rc.1\n",
		"-version=raw": `version.Info{Major:"7", Minor:"8.9-rc.1", GitVersion:"v7.8.9-rc.1", GitCommit:"cafe", GitTreeState:"clean", GoVersion:"go`,
	} {
		out, err := exec.Command(path, flag).Output()
		if err != nil {
			t.Fatalf("%s: %v", flag, err)
		}
		if !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: got %q, want %q", flag, out, want)
		}
	}
}
