// Dist builds what is installed: for amd64 and arm64 a deb, an rpm and a tar.gz with a static kube-proxy, its man page and completions, an OCI image layout of both, the same image
// for docker load, a tar.gz with the school for Linux and one for macOS, a list of what each program was built from (SPDX), and checksums.
//
//	dist -root=. -out=bin/dist -version=v1.2.3 -commit=… -tree=clean -time=SECONDS
//	dist release -root=. -out=bin/release     the same of a tag, with a VEX document, provenance and a signature: docs/releases.md
//	dist licenses -root=.                     the license of each module that is linked; one that is not permitted is an error
//	dist vulnerabilities -root=.              what govulncheck finds, and vex.json does not explain, is an error
//
// The same sources, Go and arguments give the same bytes, in whatever directory: every time in the files is -time, files are sorted, and no
// program holds a path of the machine. It is a module of its own, so that the product needs none of the libraries that write packages.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A release is what is built, and from what.
type release struct {
	root, out              string
	describe, commit, tree string // what the program says of itself
	version                string // of the packages
	when                   time.Time
	manual                 manual
	modules                []linked // that any program holds
}

func main() {
	var r release
	var seconds int64
	words := os.Args[1:]
	verb := ""
	if len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		verb, words = words[0], words[1:]
	}
	flags := flag.NewFlagSet("dist", flag.ExitOnError)
	flags.StringVar(&r.root, "root", ".", "the tree")
	arches := flags.String("arch", "amd64,arm64", "architectures")
	switch verb {
	case "":
		flags.StringVar(&r.describe, "version", "", "what git describe says")
		flags.StringVar(&r.commit, "commit", "", "the commit")
		flags.StringVar(&r.tree, "tree", "", "clean or dirty")
		flags.Int64Var(&seconds, "time", 0, "time of the commit, in seconds since 1970")
		fallthrough
	case "release":
		flags.StringVar(&r.out, "out", "bin/dist", "directory for the results; what an earlier run has left there is removed")
	}
	_ = flags.Parse(words) // it exits at an error
	var err error
	switch all := strings.Split(*arches, ","); verb {
	case "":
		r.when = time.Unix(seconds, 0).UTC()
		r.version = packageVersion(r.describe, r.when)
		if err = r.build(all); err == nil {
			err = r.sums()
		}
	case "release":
		err = r.publish(all)
	case "licenses":
		err = r.checkLicenses(all)
	case "vulnerabilities":
		err = r.checkVulnerabilities(reachableOnly)
	default:
		err = fmt.Errorf("there is no verb %q; see the package's documentation", verb)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// described is what git describe says where there is a tag of a version: the version, what it is a candidate of, and what follows.
var described = regexp.MustCompile(`^v(\d[^-]*)(?:-(rc\.\d+))?(?:-(.+))?$`)

// packageVersion returns a version that package managers can order: that of the tag, if there is one, else one by the time of the commit. In both a
// dash would separate something else. A tilde comes before the end of a version: a release candidate is before its release.
func packageVersion(describe string, when time.Time) string {
	parts := described.FindStringSubmatch(describe)
	if parts == nil {
		return "0.0.0+" + when.Format("20060102.150405") + "." + strings.ReplaceAll(describe, "-", ".")
	}
	version := parts[1]
	if parts[2] != "" {
		version += "~" + parts[2]
	}
	if parts[3] != "" {
		version += "+" + strings.ReplaceAll(parts[3], "-", ".")
	}
	return version
}

func (r *release) build(arches []string) error {
	if err := r.empty(); err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	if r.manual, err = readManual(r.root); err != nil {
		return err
	}
	proxies := make(map[string]*program) // by architecture
	for _, t := range targets(arches) {
		p, err := r.program(t, stage)
		if err != nil {
			return fmt.Errorf("%s for %s/%s: %w", t.name, t.system, t.arch, err)
		}
		if t.name != packageName {
			if err := r.school(p); err != nil {
				return err
			}
			continue
		}
		proxies[t.arch] = p
		if err := r.archive(p); err != nil {
			return fmt.Errorf("tar.gz: %w", err)
		}
		if err := r.packages(p, filepath.Join(stage, t.arch)); err != nil {
			return err
		}
	}
	if err := r.image(arches, proxies); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// empty makes the directory of the results. It removes what an earlier run has left there, and nothing else: the directory comes from a command line.
func (r *release) empty() error {
	if err := r.mayBeEmptied(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.name(sumsName), nil, 0o644) // so that the next run knows the directory, also if this one is interrupted
}

// mayBeEmptied returns an error unless the directory of the results is not there, is empty, or has an earlier run's checksums, and the tree is elsewhere.
func (r *release) mayBeEmptied() error {
	files, err := os.ReadDir(r.out)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(files) == 0 {
		return nil
	} else if err != nil {
		return err
	}
	out, err := resolved(r.out)
	if err != nil {
		return err
	}
	root, err := resolved(r.root)
	if err != nil {
		return err
	}
	if within, err := filepath.Rel(out, root); err == nil && filepath.IsLocal(within) {
		return fmt.Errorf("%s is not emptied: the tree is in it", r.out)
	}
	sums, err := os.ReadFile(r.name(sumsName))
	if err != nil || len(sums) > 0 && !strings.Contains(string(sums), "  "+packageName) {
		return fmt.Errorf("%s is not emptied: it is not empty, and has no %s of an earlier run", r.out, sumsName)
	}
	return nil
}

// resolved returns the absolute path of what exists, without symbolic links.
func resolved(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// name returns the path of a result.
func (r *release) name(format string, args ...any) string {
	return filepath.Join(r.out, fmt.Sprintf(format, args...))
}

// sumsName is the file with the checksums of all others.
const sumsName = "SHA256SUMS"

// sums writes SHA256SUMS, for sha256sum -c. It covers every other file below the directory of the results.
func (r *release) sums() error {
	sums, err := r.checksums()
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, name := range sortedKeys(sums) {
		fmt.Fprintf(&lines, "%s  %s\n", sums[name], name)
	}
	return os.WriteFile(r.name(sumsName), []byte(lines.String()), 0o644)
}

// checksums returns that of each other file below the directory of the results, by its path there.
func (r *release) checksums() (map[string]string, error) {
	sums := make(map[string]string)
	err := filepath.WalkDir(r.out, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == r.name(sumsName) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.out, path)
		sums[filepath.ToSlash(name)] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	})
	return sums, err
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
