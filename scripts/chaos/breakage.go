package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"kubeproxy/config/etcdsource/truth"
	"kubeproxy/scripts/internal/try"
)

// A run that cannot fail proves nothing. Each file in testdata/breakages removes one idea from the proxy (see [truth.Breakage]); only the
// node is built with it. The same run must then fail, with the message that the file names.

// breakages is where the archives are, seen from the top of the tree, where the program must be started.
const breakages = "scripts/chaos/testdata/breakages"

// runBreakages runs the chosen ones, each until the first failure. An error names those that no run noticed.
func runBreakages(ctx context.Context, s settings, out io.Writer) error {
	pattern := s.breakage
	if pattern == "all" {
		pattern = "*"
	}
	archives, err := filepath.Glob(filepath.Join(breakages, pattern+".txtar"))
	if err != nil || len(archives) == 0 {
		return fmt.Errorf("there is no breakage %q in %s", s.breakage, breakages)
	}
	var missed []error
	for _, archive := range archives {
		b, err := truth.ReadBreakage(archive)
		if err != nil {
			return err
		}
		caught, err := runBreakage(ctx, s, b, out)
		if err != nil {
			missed = append(missed, fmt.Errorf("%s: %w", b.Name, err))
			continue
		}
		fmt.Fprintf(out, "%s: caught %s\n", b.Name, caught)
	}
	return errors.Join(missed...)
}

// runBreakage returns how a breakage was caught, or an error if it was not.
func runBreakage(ctx context.Context, s settings, b truth.Breakage, out io.Writer) (caught string, err error) {
	defer try.Catch(&err)
	dir := try.Get(os.MkdirTemp("", "chaos"))
	defer os.RemoveAll(dir)
	overlay := try.Get(b.Overlay(".", dir))
	if s.only == "" {
		s.only = b.Hint // the faults that bring it out soonest
	}
	s.node, s.dir, s.first = filepath.Join(dir, "broken"), filepath.Join(dir, "run"), true
	cmd := exec.CommandContext(ctx, "go", "build", "-o", s.node, "-overlay", overlay, "./scripts/chaos")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, said)
	}
	try.Do(os.Mkdir(s.dir, 0o700))
	fmt.Fprintf(out, "--- %s\n", b.Name)
	began := time.Now()
	failure := runChaos(ctx, s, out)
	switch {
	case failure == nil:
		return "", errors.New("the run did not notice it")
	case !b.Message.MatchString(failure.Error()):
		return "", fmt.Errorf("the run failed without saying %q: %w", b.Message, failure)
	}
	text := []byte(failure.Error())
	at := b.Message.FindIndex(text)
	line, _, _ := bytes.Cut(text[bytes.LastIndexByte(text[:at[0]], '\n')+1:], []byte("\n"))
	return fmt.Sprintf("after %v by: %s", time.Since(began).Round(time.Second), line), nil
}
