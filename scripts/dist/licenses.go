package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// permitted are the licenses, by their SPDX names, under which a module may be linked. All of them let the programs be under the Apache License.
// Another one needs a decision, and then a line here.
var permitted = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// leastCoverage is the share of a license file, in percent, that has to be a known license's text. The rest is names and years.
const leastCoverage = 75

// stdlib is the name of Go's own library, as in the bill of materials and in the vulnerability database.
const stdlib = "stdlib"

// A linked is a module that is in a program.
type linked struct {
	path, version string
	license       string   // an SPDX expression
	notices       []notice // what its license asks a distributor to pass on
}

// A notice is a file of a module.
type notice struct {
	path    string // in the module
	content []byte
}

var (
	licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([.-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice(\.(txt|md))?$`)
)

// modulesOf returns the modules that a target is linked with, Go's own library first, then by their paths. A module without a license that is permitted is
// an error with its name. The files are those of the directories of its linked packages, and of all directories above them.
func (r *release) modulesOf(t target) ([]linked, error) {
	cmd := exec.Command("go", "list", "-deps", "-mod=readonly", "-json=Dir,Standard,Module", t.source)
	cmd.Dir, cmd.Env, cmd.Stderr = r.root, t.environment(), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", t.source, err)
	}
	type place struct{ top, dir string }
	dirs := make(map[string][]place) // of packages, by module: path@version
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if m := p.Module; m != nil && !m.Main {
			dirs[m.Path+"@"+m.Version] = append(dirs[m.Path+"@"+m.Version], place{m.Dir, p.Dir})
		}
	}
	library, err := r.library()
	if err != nil {
		return nil, err
	}
	all := []linked{library}
	for name, places := range dirs {
		m := linked{}
		m.path, m.version, _ = strings.Cut(name, "@")
		seen := make(map[string]bool)
		for _, p := range places {
			for dir := p.dir; !seen[dir]; dir = filepath.Dir(dir) {
				seen[dir] = true
				if err := m.read(p.top, dir); err != nil {
					return nil, err
				}
				if dir == p.top {
					break
				}
			}
		}
		if err := m.classify(); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all[1:], func(a, b linked) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// library returns Go's own, whose license is at the root of the installation, or of what holds that.
func (r *release) library() (linked, error) {
	m := linked{path: stdlib}
	out, err := r.goSays("env", "GOVERSION", "GOROOT")
	if err != nil {
		return m, err
	}
	version, root, _ := strings.Cut(strings.TrimSpace(out), "\n")
	m.version = strings.TrimPrefix(version, "go")
	for _, dir := range []string{root, filepath.Dir(root)} {
		if err := m.read(dir, dir); err != nil {
			return m, err
		}
		if len(m.notices) > 0 {
			break
		}
	}
	return m, m.classify()
}

// goSays returns what a go command prints in the tree.
func (r *release) goSays(words ...string) (string, error) {
	cmd := exec.Command("go", words...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(words, " "), err)
	}
	return string(out), nil
}

// read adds the licenses and notices of a directory of the module whose root is top.
func (m *linked) read(top, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeType != 0 || filepath.Ext(e.Name()) == ".go" || !licenseFile.MatchString(e.Name()) && !noticeFile.MatchString(e.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		path, err := filepath.Rel(top, filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.notices = append(m.notices, notice{filepath.ToSlash(path), content})
	}
	return nil
}

// classify decides under which licenses the module is, by the texts of its files.
func (m *linked) classify() error {
	slices.SortFunc(m.notices, func(a, b notice) int { return strings.Compare(a.path, b.path) })
	var names []string
	for _, n := range m.notices {
		if !licenseFile.MatchString(n.path[strings.LastIndexByte(n.path, '/')+1:]) {
			continue
		}
		found := licensecheck.Scan(n.content)
		for _, match := range found.Match {
			if !slices.Contains(permitted, match.ID) {
				return fmt.Errorf("module %s@%s: %s has the license %q, which is not among the permitted ones: %s", m.path, m.version, n.path, match.ID, strings.Join(permitted, ", "))
			}
			names = append(names, match.ID)
		}
		if found.Percent < leastCoverage {
			return fmt.Errorf("module %s@%s: %s is no license that is known: %.0f %% of it are the text of one", m.path, m.version, n.path, found.Percent)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("module %s@%s has no license file", m.path, m.version)
	}
	slices.Sort(names)
	m.license = strings.Join(slices.Compact(names), " AND ")
	return nil
}

// noticesName is the file of the packages with the licenses of what is linked.
const noticesName = "THIRD-PARTY-NOTICES.txt"

// notices returns the licenses of what a program is linked with: a line for each module, and then the texts.
func notices(program string, all []linked) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s is under the Apache License 2.0. It is linked with these modules, which have licenses of their own:\n\n", program)
	for _, m := range all {
		fmt.Fprintf(&b, "%s %s: %s\n", m.path, m.version, m.license)
	}
	rule := strings.Repeat("=", 80)
	for _, m := range all {
		for _, n := range m.notices {
			fmt.Fprintf(&b, "\n%s\n%s %s, %s\n%s\n\n%s\n", rule, m.path, m.version, n.path, rule, bytes.TrimSpace(n.content))
		}
	}
	return b.Bytes()
}

// sameModules returns an error if a program was linked with other modules than those whose licenses were read.
func sameModules(built *debug.BuildInfo, all []linked) error {
	has := map[string]bool{stdlib + "@" + strings.TrimPrefix(built.GoVersion, "go"): true}
	for _, m := range built.Deps {
		has[m.Path+"@"+m.Version] = true
	}
	for _, m := range all {
		if !has[m.path+"@"+m.version] {
			return fmt.Errorf("the program does not hold the module %s@%s, which go list names", m.path, m.version)
		}
		delete(has, m.path+"@"+m.version)
	}
	for name := range has {
		return fmt.Errorf("the program holds the module %s, which go list does not name", name)
	}
	return nil
}

// checkLicenses prints the license of each module of each program.
func (r *release) checkLicenses(arches []string) error {
	printed := make(map[string]bool)
	for _, t := range targets(arches) {
		all, err := r.modulesOf(t)
		if err != nil {
			return err
		}
		for _, m := range all {
			line := fmt.Sprintf("%s %s: %s", m.path, m.version, m.license)
			if !printed[line] {
				printed[line] = true
				fmt.Println(line)
			}
		}
	}
	fmt.Printf("%d modules, all under permitted licenses: %s\n", len(printed), strings.Join(permitted, ", "))
	return nil
}
