// Dist builds what is installed: for amd64 and arm64 a deb, an rpm and a tar.gz with a static kube-proxy, its man page and completions, an OCI image layout of both, the same image
// for docker load, a tar.gz with the school for Linux and one for macOS, a list of what each program was built from (SPDX), and checksums.
//
//	dist -root=. -out=bin/dist -version=v1.2.3 -commit=… -tree=clean -time=SECONDS
//
// The same sources, Go and arguments give the same bytes, in whatever directory: every time in the files is -time, files are sorted, and no
// program holds a path of the machine. It is a module of its own, so that the product needs none of the libraries that write packages.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
}

func main() {
	var r release
	var seconds int64
	flag.StringVar(&r.root, "root", ".", "the tree")
	flag.StringVar(&r.out, "out", "bin/dist", "directory for the results; what it holds is removed")
	flag.StringVar(&r.describe, "version", "", "what git describe says")
	flag.StringVar(&r.commit, "commit", "", "the commit")
	flag.StringVar(&r.tree, "tree", "", "clean or dirty")
	flag.Int64Var(&seconds, "time", 0, "time of the commit, in seconds since 1970")
	arches := flag.String("arch", "amd64,arm64", "architectures")
	flag.Parse()
	r.when = time.Unix(seconds, 0).UTC()
	r.version = packageVersion(r.describe, r.when)
	if err := r.build(strings.Split(*arches, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// packageVersion returns a version that package managers can order: that of the tag, if there is one, else one by the time of the commit. In both a
// dash would separate something else.
func packageVersion(describe string, when time.Time) string {
	described := strings.ReplaceAll(describe, "-", ".")
	if tag, rest, _ := strings.Cut(describe, "-"); len(tag) > 1 && tag[0] == 'v' && tag[1] >= '0' && tag[1] <= '9' {
		if rest == "" {
			return tag[1:]
		}
		return tag[1:] + "+" + strings.ReplaceAll(rest, "-", ".")
	}
	return "0.0.0+" + when.Format("20060102.150405") + "." + described
}

func (r *release) build(arches []string) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
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
	programs := make(map[string][]byte) // by architecture
	for _, arch := range arches {
		path, err := r.compile(kubeProxy(arch), stage)
		if err != nil {
			return err
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		programs[arch] = program
		if err := r.bill(kubeProxy(arch), path); err != nil {
			return fmt.Errorf("bill of materials: %w", err)
		}
		if err := r.archive(arch, program); err != nil {
			return fmt.Errorf("tar.gz: %w", err)
		}
		if err := r.packages(arch, program, filepath.Join(stage, arch)); err != nil {
			return err
		}
		for _, t := range schools(arch) {
			if err := r.school(t, stage); err != nil {
				return err
			}
		}
	}
	if err := r.image(arches, programs); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return r.sums()
}

// name returns the path of a result.
func (r *release) name(format string, args ...any) string {
	return filepath.Join(r.out, fmt.Sprintf(format, args...))
}

// sums writes SHA256SUMS, for sha256sum -c. It covers every file below the directory of the results.
func (r *release) sums() error {
	var lines []string
	err := filepath.WalkDir(r.out, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.out, path)
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), filepath.ToSlash(name)))
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(r.name("SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
