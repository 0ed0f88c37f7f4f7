package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kubeproxy/config/etcdsource/truth"
)

// TestEveryBreakageFitsTheSource: what a breakage takes out is there, once, and what it leaves compiles. Whether a run notices it is
// found out by `make chaos BREAKAGE=all`.
func TestEveryBreakageFitsTheSource(t *testing.T) {
	const root = "../.."
	archives, err := filepath.Glob(filepath.Join(root, breakages, "*.txtar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("archives %q: %v", archives, err)
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			b, err := truth.ReadBreakage(archive)
			if err != nil {
				t.Fatal(err)
			}
			overlay, err := b.Overlay(root, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "kubeproxy/config/...")
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if said, err := build.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}
