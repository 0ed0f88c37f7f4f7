//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"kubeproxy/scripts/internal/try"
)

func main() {
	duration := flag.Duration("duration", time.Minute, "`time` that the torture has for each")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Usage: mutations [flags] [name...]\nRuns the torture with broken builds of kube-proxy, of which it has to find each. Names are those of files in scripts/torture/mutations/patches; none: all.\nRun it in the root of the tree.\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(".", flag.Args(), *duration, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "mutations: %v\n", err)
		os.Exit(1)
	}
}

// patches is where the mutations are, below the root of the tree.
const patches = "scripts/torture/mutations/patches"

// run has the torture look for some mutations of a tree.
func run(root string, names []string, duration time.Duration, out io.Writer) (err error) {
	defer try.Catch(&err)
	all := try.Get(named(try.Get(mutations(root)), names))
	dir := try.Get(os.MkdirTemp("", "mutations"))
	defer os.RemoveAll(dir)
	torture := filepath.Join(dir, "torture")
	try.Do(build(root, torture, "./scripts/torture"))
	missed := 0
	for _, m := range all {
		overlay := try.Get(m.overlay(root, filepath.Join(dir, m.name)))
		binary := filepath.Join(dir, m.name, "kube-proxy")
		try.Do(build(root, binary, "-overlay="+overlay, "./cmd/kube-proxy"))
		began := time.Now()
		args := append([]string{"-binary=" + binary, "-duration=" + duration.String(), "-most=1", "-dir=" + filepath.Join(dir, m.name, "run")}, m.args...)
		said, failed := exec.Command(torture, args...).CombinedOutput()
		switch found := fault(said); {
		case found != "":
			fmt.Fprintf(out, "%s: found in %v: %s\n", m.name, time.Since(began).Round(time.Second), found)
		case failed != nil:
			return fmt.Errorf("%s: the torture did not run: %w: %s", m.name, failed, said)
		default:
			missed++
			fmt.Fprintf(out, "%s: not found in %v: %s\n", m.name, duration, m.wrong)
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d broken builds were taken for sound ones", missed)
	}
	return nil
}

// named returns those with the names, or all without one. None at all is an error, as a name is that nobody has: else nothing would be broken, and
// nothing be found, and all be well.
func named(all []mutation, names []string) ([]mutation, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no patch in %s", patches)
	}
	if len(names) == 0 {
		return all, nil
	}
	var some []mutation
	for _, name := range names {
		i := slices.IndexFunc(all, func(m mutation) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no patch %q in %s", name, patches)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// fault returns the first fault that the torture has printed; "": none.
func fault(said []byte) string {
	_, text, _ := strings.Cut(string(said), "\nround ")
	_, text, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, "\n")
	return text
}

// A mutation is one way to break kube-proxy.
type mutation struct {
	name  string
	wrong string   // what is wrong then
	args  []string // of the torture
	patch []byte
}

// mutations reads all there are.
func mutations(root string) (all []mutation, err error) {
	files, err := filepath.Glob(filepath.Join(root, patches, "*.patch"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m := mutation{name: strings.TrimSuffix(filepath.Base(file), ".patch"), patch: text}
		head, _, _ := strings.Cut(string(text), "\ndiff ")
		wrong, args, ok := strings.Cut(head, "\n\ntorture: ")
		if !ok || strings.Contains(wrong, "\n") {
			return nil, fmt.Errorf("%s: want one line that says what is wrong, an empty one, and \"torture: \" with flags", file)
		}
		m.wrong, m.args = wrong, strings.Fields(args)
		all = append(all, m)
	}
	return all, err
}

var changed = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)

// overlay writes the files that the mutation changes into a directory, and returns what go build takes for -overlay.
func (m *mutation) overlay(root, dir string) (file string, err error) {
	defer try.Catch(&err)
	root = try.Get(filepath.Abs(root))
	replace := make(map[string]string)
	for _, match := range changed.FindAllSubmatch(m.patch, -1) {
		name := string(match[1])
		to := filepath.Join(dir, name)
		try.Do(os.MkdirAll(filepath.Dir(to), 0o755))
		try.Do(os.WriteFile(to, try.Get(os.ReadFile(filepath.Join(root, name))), 0o644))
		replace[filepath.Join(root, name)] = to
	}
	apply := exec.Command("git", "apply", "-")
	apply.Dir, apply.Stdin = dir, bytes.NewReader(m.patch)
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // or git would take the files for those of a repository
	if said, err := apply.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: the patch does not apply: %w: %s", m.name, err, said)
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, try.Get(json.Marshal(map[string]any{"Replace": replace})), 0o644)
}

// build builds a program of the tree.
func build(root, to string, args ...string) error {
	b := exec.Command("go", append([]string{"build", "-o", to}, args...)...)
	b.Dir = root
	if said, err := b.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", b.Args, err, said)
	}
	return nil
}
