package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// publish builds a release: of a clean tree whose HEAD has a tag, without known vulnerabilities that are not explained, and signed. What can be missing
// is looked at before anything is built.
func (r *release) publish(arches []string) error {
	if err := r.fromTag(); err != nil {
		return err
	}
	key, err := signingKey()
	if err != nil {
		return err
	}
	toolchain, err := r.pinned()
	if err != nil {
		return err
	}
	if err := r.checkVulnerabilities(required); err != nil {
		return err
	}
	if err := r.build(arches); err != nil {
		return err
	}
	if err := r.vex(); err != nil {
		return fmt.Errorf("VEX document: %w", err)
	}
	sums, err := r.checksums()
	if err != nil {
		return err
	}
	if err := r.provenance(arches, toolchain, sums); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if err := r.sums(); err != nil {
		return err
	}
	return r.sign(key)
}

// tagOf is what a tag of a release looks like.
var tagOf = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-rc\.[1-9]\d*)?$`)

// fromTag reads from the tree what it is a release of.
func (r *release) fromTag() error {
	changed, err := r.git("status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		first, _, _ := strings.Cut(changed, "\n")
		return fmt.Errorf("the tree is not what its commit says, so it is no release: git status says %q first", first)
	}
	if r.commit, err = r.git("rev-parse", "HEAD"); err != nil {
		return err
	}
	listed, err := r.git("tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	var tags []string
	for _, tag := range strings.Fields(listed) {
		if tagOf.MatchString(tag) {
			tags = append(tags, tag)
		}
	}
	if len(tags) != 1 {
		return fmt.Errorf("commit %.12s has %d tags of a release, such as v1.2.3 or v1.2.3-rc.1, and must have one: %q", r.commit, len(tags), strings.Fields(listed))
	}
	seconds, err := r.git("log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.describe, r.tree, r.when = tags[0], "clean", time.Unix(at, 0).UTC()
	r.version = packageVersion(r.describe, r.when)
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	return heading(changes, r.describe)
}

// heading returns an error unless the changelog begins with the release.
func heading(changelog []byte, tag string) error {
	first := regexp.MustCompile(`(?m)^## (.*)$`).FindSubmatch(changelog)
	if first == nil || string(first[1]) != tag {
		said := []byte("none")
		if first != nil {
			said = first[0]
		}
		return fmt.Errorf("the first heading of CHANGELOG.md must be %q, and is %q", "## "+tag, said)
	}
	return nil
}

// git returns what git prints of the tree, without the line's end.
func (r *release) git(words ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", r.root}, words...)...)
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %s", words[0], bytes.TrimSpace(exit.Stderr))
	}
	return strings.TrimRight(string(out), "\n"), err
}
