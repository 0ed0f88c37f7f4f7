package etcdsource_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubeproxy/config/etcdsource/truth"
)

var breakageRuns = flag.Int("breakage.runs", 1, "how often the model test must catch each deliberate breakage")

// Each file in testdata/overlay is a [truth.Breakage] of the source.
func TestTheModelTestCatchesEachBreakage(t *testing.T) {
	t.Parallel()
	archives, err := filepath.Glob("testdata/overlay/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(archives) != 4 {
		t.Errorf("%d breakages in testdata/overlay; want 4", len(archives))
	}
	for _, archive := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(archive), ".txtar"), func(t *testing.T) {
			t.Parallel()
			b, err := truth.ReadBreakage(archive)
			if err != nil {
				t.Fatal(err)
			}
			binary := build(t, b)
			for range *breakageRuns {
				mustBeCaught(t, b, binary, breaksPages[filepath.Base(archive)])
			}
		})
	}
}

// build compiles the tests of this package with the breakage in it.
func build(t *testing.T, b truth.Breakage) (binary string) {
	t.Helper()
	dir := t.TempDir()
	overlay, err := b.Overlay(".", dir)
	if err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "broken.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "-overlay", overlay, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return binary
}

// breaksPages are the breakages of lists in pages, and how many keys one has. The others are of all lists, and caught where they come in streams.
var breaksPages = map[string]int{"revision-of-the-last-page.txtar": 3}

// mustBeCaught runs the model test on the broken source, with pages of so many keys.
func mustBeCaught(t *testing.T, b truth.Breakage, binary string, page int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	started := time.Now()
	out, err := exec.CommandContext(ctx, binary, "-test.run=^TestAfterEveryUpdateTheSourceEqualsTheRegistry$",
		fmt.Sprint("-model.page=", page), "-test.v", "-test.timeout=5m", "-log_dir="+t.TempDir(), "-stderrthreshold=FATAL").CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("the model test does not notice the breakage:\n%s", out)
	case !b.Message.Match(out):
		t.Errorf("the model test failed (%v) without saying %q:\n%s", err, b.Message, out)
	default:
		at := b.Message.FindIndex(out)
		line := bytes.LastIndexByte(out[:at[1]], '\n') + 1
		complaint, _, _ := bytes.Cut(out[line:], []byte("\n"))
		t.Logf("caught after %v: %s", time.Since(started).Round(time.Millisecond), bytes.TrimSpace(complaint))
	}
}
