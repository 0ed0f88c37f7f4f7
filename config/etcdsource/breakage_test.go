package etcdsource_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

var breakageRuns = flag.Int("breakage.runs", 1, "how often the model test must catch each deliberate breakage")

// A test that nothing can fail proves nothing. Each file in testdata/overlay takes one idea out of the
// source, the way a hurried edit would; with that built in (go build -overlay), the model test must
// fail, and say what differs.
//
// An archive names the file, the lines that it breaks and what stands there instead, so that it
// cannot quietly grow old: lines that are not found, or found twice, fail this test.
func TestTheModelTestCatchesEachBreakage(t *testing.T) {
	archives, err := filepath.Glob("testdata/overlay/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(archives) != 3 {
		t.Errorf("%d breakages in testdata/overlay; want 3", len(archives))
	}
	for _, archive := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(archive), ".txtar"), func(t *testing.T) {
			b := readBreakage(t, archive)
			binary := b.build(t)
			for range *breakageRuns {
				b.mustBeCaught(t, binary)
			}
		})
	}
}

// A breakage is what one archive says.
type breakage struct {
	edits   []edit
	message *regexp.Regexp // what the model test must say
}

// An edit replaces one passage of one file.
type edit struct{ file, old, new string }

// readBreakage reads an archive: a comment, for each edit the parts "FILE: old" and "FILE: new", and
// the part "message".
func readBreakage(t *testing.T, archive string) breakage {
	t.Helper()
	a, err := txtar.ParseFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	var b breakage
	for i, part := range a.Files {
		file, what, _ := strings.Cut(part.Name, ": ")
		switch {
		case part.Name == "message":
			b.message = regexp.MustCompile(strings.TrimSpace(string(part.Data)))
		case what == "old" && i+1 < len(a.Files) && a.Files[i+1].Name == file+": new":
			b.edits = append(b.edits, edit{file, string(part.Data), string(a.Files[i+1].Data)})
		case what != "new":
			t.Fatalf("%s: unknown part %q", archive, part.Name)
		}
	}
	if b.message == nil || b.edits == nil {
		t.Fatalf("%s: no message, or nothing to break", archive)
	}
	return b
}

// build compiles the tests of this package with the breakage in it.
func (b breakage) build(t *testing.T) (binary string) {
	t.Helper()
	dir := t.TempDir()
	broken := make(map[string]string) // by file
	for _, e := range b.edits {
		if _, ok := broken[e.file]; !ok {
			source, err := os.ReadFile(e.file)
			if err != nil {
				t.Fatal(err)
			}
			broken[e.file] = string(source)
		}
		if n := strings.Count(broken[e.file], e.old); n != 1 {
			t.Fatalf("%s has %d passages like this one; want 1, or the breakage breaks nothing:\n%s", e.file, n, e.old)
		}
		broken[e.file] = strings.Replace(broken[e.file], e.old, e.new, 1)
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = make(map[string]string)
	for file, source := range broken {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		overlay.Replace[path] = filepath.Join(dir, file)
		if err := os.WriteFile(overlay.Replace[path], []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	description, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), description, 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "broken.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "-overlay", filepath.Join(dir, "overlay.json"), ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return binary
}

// mustBeCaught runs the model test on the broken source.
func (b breakage) mustBeCaught(t *testing.T, binary string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	started := time.Now()
	out, err := exec.CommandContext(ctx, binary, "-test.run=^TestAfterEveryUpdateTheSourceEqualsTheRegistry$",
		"-test.v", "-test.timeout=100s", "-log_dir="+t.TempDir(), "-stderrthreshold=FATAL").CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("the model test does not notice the breakage:\n%s", out)
	case !b.message.Match(out):
		t.Errorf("the model test failed (%v) without saying %q:\n%s", err, b.message, out)
	default:
		at := b.message.FindIndex(out)
		line := bytes.LastIndexByte(out[:at[1]], '\n') + 1
		complaint, _, _ := bytes.Cut(out[line:], []byte("\n"))
		t.Logf("caught after %v: %s", time.Since(started).Round(time.Millisecond), bytes.TrimSpace(complaint))
	}
}
