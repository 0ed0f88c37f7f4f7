package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBadConfigFilesAreNamedInOneLine: v0.4 crashed on some of these (D6), and ran on with others
// that could not work (D7).
func TestBadConfigFilesAreNamedInOneLine(t *testing.T) {
	files, err := filepath.Glob("testdata/bad-etcd-config-*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, "-etcd_config="+file)
			if code := p.Exit(t).ExitCode(); code != exitFailed {
				t.Errorf("exit status %d, want %d", code, exitFailed)
			}
			line, rest, _ := strings.Cut(p.Stderr.String(), "\n")
			if !strings.HasPrefix(line, "E") || !strings.Contains(line, file) || rest != "" {
				t.Errorf("standard error is not one line that names the file: %q", p.Stderr)
			}
		})
	}
}
