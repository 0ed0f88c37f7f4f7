package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMakeTakesTheNameOfATagAsText: who may push a tag must not run commands on the machine that builds it.
func TestMakeTakesTheNameOfATagAsText(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	const tag = `v1'$(touch${IFS}ran)'`
	tree, bin := filepath.Join(t.TempDir(), "a tree"), t.TempDir()
	recorded := filepath.Join(bin, "arguments")
	recorder := "#!/bin/sh\nprintf '%s\\n' \"$@\" >>\"$RECORDED\"\n"
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(tree, "Makefile"):           string(makefile),
		filepath.Join(tree, "scripts/dist-check"): recorder,
		filepath.Join(bin, "go"):                  recorder,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, words := range [][]string{
		{"git", "init", "--quiet"},
		{"git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--allow-empty", "--message=one"},
		{"git", "tag", tag},
		{"make", "build", "dist-check"},
	} {
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "RECORDED="+recorded, "GIT_CONFIG_GLOBAL="+os.DevNull, "MAKEFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", words, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(tree, "ran")); err == nil {
		t.Error("the tag's name was executed")
	}
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	arguments := strings.Split(string(text), "\n")
	for _, want := range []string{"-root=" + tree, "-out=" + filepath.Join(tree, "bin/dist"), "-version=" + tag, "-v=" + tag} {
		if !slices.Contains(arguments, want) {
			t.Errorf("no program got the argument %s", want)
		}
	}
	if !strings.Contains(string(text), "\n-X main.gitVersion="+tag+" ") {
		t.Errorf("go build did not get the tag for main.gitVersion")
	}
	if t.Failed() {
		t.Logf("the arguments, one a line:\n%s", text)
	}
}
