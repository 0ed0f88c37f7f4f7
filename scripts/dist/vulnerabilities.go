package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openvex/go-vex/pkg/vex"
)

// Where the vulnerability database is looked for, in this order: what GOVULNDB names, then the database itself, then its sources, which are a Go module.
const (
	databaseURL    = "https://vuln.go.dev"
	databaseModule = "golang.org/x/vulndb"
)

// errNoDatabase says that no database can be reached here.
var errNoDatabase = errors.New("no vulnerability database can be reached: neither " + databaseURL + " nor the module " + databaseModule + "; GOVULNDB may name a copy, as file:///DIR")

// database returns the URL of a vulnerability database for govulncheck, and says which one it is.
func (r *release) database() (url, what string, err error) {
	if url = os.Getenv("GOVULNDB"); url != "" {
		return url, "GOVULNDB, " + url, nil
	}
	client := http.Client{Timeout: 15 * time.Second}
	if response, err := client.Head(databaseURL + "/index/db.json"); err == nil {
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return databaseURL, databaseURL, nil
		}
	}
	cmd := exec.Command("go", "mod", "download", "-json", databaseModule+"@latest")
	cmd.Dir = os.TempDir() // not that of a module: none requires the database
	out, err := cmd.Output()
	var m struct{ Version, Dir string }
	if err != nil || json.Unmarshal(out, &m) != nil || m.Dir == "" {
		return "", "", errNoDatabase
	}
	return "file://" + filepath.ToSlash(filepath.Join(m.Dir, "data", "osv")), databaseModule + " " + m.Version, nil
}

// A finding is a vulnerability of something that is linked.
type finding struct {
	module, version, fixed string
	reach                  reach
	trace                  string // the first call that leads there, if any is known
}

// A reach says how near a program comes to what is vulnerable.
type reach int

const (
	requires reach = iota // it is linked with the module, but not the package
	imports               // with the package, and calls nothing of it that is vulnerable
	calls
)

func (r reach) String() string { return [...]string{"requires", "imports", "calls"}[r] }

// readFindings reads govulncheck's stream of JSON: for each vulnerability the nearest finding, and the names that it has beside its own.
func readFindings(stream io.Reader) (found map[string]finding, aliases map[string][]string, err error) {
	found, aliases = make(map[string]finding), make(map[string][]string)
	for d := json.NewDecoder(stream); ; {
		var message struct {
			OSV *struct {
				ID      string
				Aliases []string
			}
			Finding *struct {
				OSV          string
				FixedVersion string `json:"fixed_version"`
				Trace        []struct{ Module, Version, Package, Function, Receiver string }
			}
		}
		switch err := d.Decode(&message); {
		case errors.Is(err, io.EOF):
			return found, aliases, nil
		case err != nil:
			return nil, nil, fmt.Errorf("read what govulncheck says: %w", err)
		case message.OSV != nil:
			aliases[message.OSV.ID] = message.OSV.Aliases
		case message.Finding != nil && len(message.Finding.Trace) > 0:
			f, at := message.Finding, message.Finding.Trace[0]
			next := finding{module: at.Module, version: at.Version, fixed: f.FixedVersion}
			switch {
			case at.Function != "":
				next.reach, next.trace = calls, at.Package+"."+at.Function
			case at.Package != "":
				next.reach = imports
			}
			if before, ok := found[f.OSV]; !ok || next.reach > before.reach {
				found[f.OSV] = next
			}
		}
	}
}

// unexplained returns a line for each finding that the statements do not explain: that say that the programs are not affected, or what their
// users can do. A statement that a vulnerability is fixed explains no finding of it.
func unexplained(found map[string]finding, aliases map[string][]string, statements []vex.Statement) (lines []string) {
	for _, id := range slices.Sorted(maps.Keys(found)) {
		names := append([]string{id}, aliases[id]...)
		i := slices.IndexFunc(statements, func(s vex.Statement) bool {
			return slices.Contains(names, string(s.Vulnerability.Name)) || slices.ContainsFunc(s.Vulnerability.Aliases, func(a vex.VulnerabilityID) bool { return slices.Contains(names, string(a)) })
		})
		said := "nothing"
		if i >= 0 {
			if said = string(statements[i].Status); said == string(vex.StatusNotAffected) || said == string(vex.StatusAffected) {
				continue
			}
		}
		f := found[id]
		line := fmt.Sprintf("%s: the programs %v %s, of %s %s, fixed in %s", strings.Join(names, ", "), f.reach, cmp.Or(f.trace, "what is vulnerable"), f.module, f.version, cmp.Or(f.fixed, "no version"))
		lines = append(lines, line+"; vex.json says "+said)
	}
	return lines
}

// pinned returns the toolchain that go.mod names, and has the go commands of this process use it.
func (r *release) pinned() (string, error) {
	out, err := r.goSays("mod", "edit", "-json")
	if err != nil {
		return "", err
	}
	var m struct{ Toolchain string }
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return "", err
	}
	if m.Toolchain == "" {
		return "", errors.New("go.mod names no toolchain, and a release has to be built with one that is known")
	}
	return m.Toolchain, os.Setenv("GOTOOLCHAIN", m.Toolchain)
}

// Whether a check has to be made, or only where it can be.
const (
	reachableOnly = false
	required      = true
)

// checkVulnerabilities runs govulncheck over both programs, as of the toolchain that releases are built with. A finding that vex.json does not explain
// is an error. Without a database the check is not made: that is an error if it is required, and a line otherwise.
func (r *release) checkVulnerabilities(needed bool) error {
	statements, err := readStatements(statementsFile)
	if err != nil {
		return err
	}
	url, what, err := r.database()
	if errors.Is(err, errNoDatabase) && !needed {
		fmt.Println("NOT CHECKED for known vulnerabilities:", err)
		return nil
	}
	if err != nil {
		return err
	}
	toolchain, err := r.pinned()
	if err != nil {
		return err
	}
	out, err := r.goSays("tool", "govulncheck", "-db", url, "-format", "json", kubeProxy("").source, schools("")[0].source)
	if err != nil {
		return fmt.Errorf("%w, with %s; the database is %s", err, toolchain, what)
	}
	found, aliases, err := readFindings(bytes.NewReader([]byte(out)))
	if err != nil {
		return err
	}
	lines := unexplained(found, aliases, statements)
	for _, line := range lines {
		fmt.Println(line)
	}
	if len(lines) > 0 {
		return fmt.Errorf("%d known vulnerabilities of %d found are not explained; the database is %s", len(lines), len(found), what)
	}
	said := "none is found"
	if len(found) > 0 {
		said = fmt.Sprintf("%d are found, and vex.json explains each", len(found))
	}
	fmt.Printf("known vulnerabilities: %s with %s; the database is %s\n", said, toolchain, what)
	return nil
}
