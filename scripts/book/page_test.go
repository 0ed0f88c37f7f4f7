package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEachFactOfTheSevenLessonsHoldsAtItsInstant has node play them all, twice: what happened once has to happen again, or undo would lie.
func TestEachFactOfTheSevenLessonsHoldsAtItsInstant(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("the lessons of the page are played by node, which is not here; install it: apt-get install --no-install-recommends nodejs")
	}
	wasm := filepath.Join(t.TempDir(), "page.wasm")
	wasmExec, err := compile("../..", wasm)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), node, "../page/lessons.test.js", wasm, wasmExec).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestThePageIsOneFileThatLoadsNothing, of 2.6 MB at most as servers send it.
func TestThePageIsOneFileThatLoadsNothing(t *testing.T) {
	out := filepath.Join(t.TempDir(), "page.html")
	if err := buildPage("../..", out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	w := gzip.NewWriter(&sent)
	if _, err := w.Write(text); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if sent.Len() > 2_600_000 {
		t.Errorf("the page takes %d bytes with gzip; want 2,600,000 at most", sent.Len())
	}
	t.Logf("%d bytes, %d with gzip", len(text), sent.Len())
	for _, loads := range []string{`<link`, `src=`, `@import`, `fetch("`} {
		head, _, _ := bytes.Cut(text, []byte("<script>"))
		if bytes.Contains(head, []byte(loads)) {
			t.Errorf("the page has %s: it would load something", loads)
		}
	}
}
