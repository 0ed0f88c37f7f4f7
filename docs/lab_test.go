package docs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTheDrillsAreTrue does what the drills say, with processes on loopback addresses. What needs
// containers is left to make lab-check.
func TestTheDrillsAreTrue(t *testing.T) {
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok { // end in time to stop what was started: it would outlive us
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-20*time.Second))
		defer cancel()
	}
	env := append(os.Environ(), "LAB=local",
		"LAB_RUN="+filepath.Join(t.TempDir(), "run"),
		"LAB_NET="+strconv.Itoa(100+rand.IntN(150)), // so that this disturbs no other lab
	)
	lab := func(ctx context.Context, args ...string) error {
		cmd := exec.CommandContext(ctx, "./lab", args...)
		cmd.Dir, cmd.Env, cmd.WaitDelay = root, env, time.Second
		out, err := cmd.CombinedOutput()
		t.Logf("lab %s\n%s", strings.Join(args, " "), out)
		return err
	}
	t.Cleanup(func() {
		if err := lab(context.WithoutCancel(ctx), "down"); err != nil {
			t.Errorf("lab down: %v", err)
		}
	})
	for _, step := range []string{"up", "check"} {
		if err := lab(ctx, step); err != nil {
			t.Fatalf("lab %s: %v", step, err)
		}
	}
}

// TestTheLocalLabSignalsOnlyWhatItHasStarted: the file with a machine's number outlives a reboot, after which the number is another program's.
func TestTheLocalLabSignalsOnlyWhatItHasStarted(t *testing.T) {
	stranger := exec.Command("setsid", "sleep", "300") // in a group of its own, as a machine is
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stranger.Wait() }()
	defer func() { _ = stranger.Process.Kill(); <-ended }()
	for _, verbs := range []string{"down", "kill etcd", "stop etcd", "pause etcd"} {
		for _, since := range []string{"", " 1"} {
			run := t.TempDir()
			if err := os.WriteFile(filepath.Join(run, "etcd.pid"), fmt.Appendln(nil, fmt.Sprint(stranger.Process.Pid)+since), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := localLab(t.Context(), run, strings.Fields(verbs)...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", verbs, err, out)
			}
		}
	}
	if err := exec.Command("kill", "-CONT", strconv.Itoa(stranger.Process.Pid)).Run(); err != nil {
		t.Errorf("the stranger is no more: %v", err)
	}
	_ = stranger.Process.Signal(os.Interrupt) // the first signal that it gets
	if err := <-ended; err == nil || err.Error() != "signal: interrupt" {
		t.Errorf("the stranger ended with %v; want signal: interrupt, which is ours", err)
	}
	ended <- nil
}

// localLab makes a command of the lab on this machine, whose files are below run.
func localLab(ctx context.Context, run string, args ...string) *exec.Cmd {
	lab := exec.CommandContext(ctx, "scripts/lab-local", args...)
	lab.Dir, lab.Env, lab.WaitDelay = root, append(os.Environ(), "LAB_RUN="+run), time.Second
	return lab
}

// TestTheLocalLabDeletesOnlyWhatItHasMade: LAB_RUN may be a directory that somebody has other files in.
func TestTheLocalLabDeletesOnlyWhatItHasMade(t *testing.T) {
	write := func(run string, names ...string) {
		t.Helper()
		for _, name := range names {
			path := filepath.Join(run, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("text\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	is := func(run, name string) bool { _, err := os.Stat(filepath.Join(run, name)); return err == nil }
	strangers := []string{"thesis.txt", "data/thesis.txt", "state/thesis.txt", "records/thesis.txt", "chapter.log"}
	for _, verb := range []string{"down", "up", "fresh", "forget"} { // all but down would start something here, and refuse
		run := t.TempDir()
		write(run, strangers...)
		out, err := localLab(t.Context(), run, verb).CombinedOutput()
		if (err == nil) != (verb == "down") {
			t.Errorf("%s where the lab was never up: %v: %s", verb, err, out)
		}
		for _, name := range strangers {
			if !is(run, name) {
				t.Errorf("%s has deleted %s, which the lab has not made", verb, name)
			}
		}
	}
	run := filepath.Join(t.TempDir(), "run")
	made := []string{"etcd.log", "node4.log", "data/member/wal", "state/state", "records/registry/services/specs/web"}
	for _, stranger := range []string{"thesis.txt", ""} {
		write(run, made...)
		if stranger != "" {
			write(run, stranger)
		}
		if out, err := localLab(t.Context(), run, "down").CombinedOutput(); err != nil {
			t.Errorf("down: %v: %s", err, out)
		}
		for _, name := range made {
			if is(run, name) {
				t.Errorf("down has left %s, which the lab has made", name)
			}
		}
		if stranger != "" && !is(run, stranger) {
			t.Errorf("down has deleted %s, which the lab has not made", stranger)
		}
		if err := os.Remove(filepath.Join(run, "thesis.txt")); stranger != "" && err != nil {
			t.Error(err)
		}
	}
	if is(run, "") {
		t.Error("down has left its directory, which is empty")
	}
}

// TestTheLocalLabStopsWhatIsPaused: SIGTERM of a paused process waits until the process goes on.
func TestTheLocalLabStopsWhatIsPaused(t *testing.T) {
	machine := exec.Command("setsid", "sleep", "300") // in a group of its own, as a machine is
	if err := machine.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- machine.Wait() }()
	defer func() { _ = machine.Process.Kill(); <-ended }()
	pid := strconv.Itoa(machine.Process.Pid)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	for exec.CommandContext(ctx, "kill", "-STOP", "--", "-"+pid).Run() != nil { // until it has made its group
		if ctx.Err() != nil {
			t.Fatal("the machine cannot be paused")
		}
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(stat), ") ") // what is behind the name: from field 3 on
	run := t.TempDir()
	if err := os.WriteFile(filepath.Join(run, "web-1.pid"), []byte(pid+" "+strings.Fields(fields)[19]+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := localLab(ctx, run, "stop", "web-1").CombinedOutput(); err != nil {
		t.Fatalf("stop has not ended within 10 s: %v: %s", err, out)
	}
	if err := <-ended; err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the machine ended with %v; want signal: terminated", err)
	}
	ended <- nil
}

// TestEachDrillHasItsParts holds the shape of a drill: a teacher finds the same parts in the same order.
func TestEachDrillHasItsParts(t *testing.T) {
	drills, err := filepath.Glob("lab/[0-9]*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(drills) < 8 {
		t.Fatalf("%d drills; want 8 at least", len(drills))
	}
	index, err := os.ReadFile("lab/README.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{
		"## What you will see, and why it matters\n", "## Do it\n", "./lab fresh\n", "## Break it", "## Mend it\n",
		"## What v0.4.4 did\n", "## What others do today\n", "## A question\n", "<details>\n", "</details>\n",
	}
	defect := regexp.MustCompile(`\bD(\d+)\b`)
	promise, shown := regexp.MustCompile(`\b[PLFC]\d+\b`), make(map[string]bool)
	for i, file := range drills {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		drill := string(text)
		title, rest, _ := strings.Cut(drill, "\n")
		if want := fmt.Sprintf("# %d. ", i+1); !strings.HasPrefix(title, want) {
			t.Errorf("%s:1: the title is %q; want it to begin with %q", file, title, want)
		}
		if link := fmt.Sprintf("| %d | [%s](%s)", i+1, strings.TrimPrefix(title, fmt.Sprintf("# %d. ", i+1)), filepath.Base(file)); !strings.Contains(string(index), link) {
			t.Errorf("lab/README.md: lacks the row %s", link)
		}
		promises, _, ok := strings.Cut(strings.TrimPrefix(rest, "\nPromises: "), "\n")
		if !ok || promises == "" || !strings.HasPrefix(rest, "\nPromises: ") {
			t.Errorf("%s: says not which promises it shows", file)
		}
		for _, id := range promise.FindAllString(promises, -1) {
			shown[id] = true
		}
		for _, part := range parts {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("%s: %q is missing, or not in its place", file, part)
				continue
			}
			rest = after
		}
		cited := defect.FindAllStringSubmatch(drill, -1)
		if len(cited) == 0 {
			t.Errorf("%s: cites no defect of v0.4.4", file)
		}
		for _, m := range cited {
			if n, _ := strconv.Atoi(m[1]); n < 1 || n > 49 { // it is a number
				t.Errorf("%s: there is no %s", file, m[0])
			}
		}
	}
	guarantees, err := os.ReadFile("guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\| ([PLFC]\d+) \|`).FindAllStringSubmatch(string(guarantees), -1) {
		if in := regexp.MustCompile(`\s` + m[1] + `[,.]`).Match(index); in == shown[m[1]] {
			t.Errorf("promise %s: shown by a drill: %t; in the list of lab/README.md of those without one: %t", m[1], shown[m[1]], in)
		}
		delete(shown, m[1])
	}
	for id := range shown {
		t.Errorf("a drill shows %s, which is no promise", id)
	}
}
