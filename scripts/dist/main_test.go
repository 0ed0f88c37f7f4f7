package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPackageVersionsAreOrderedByTagsAndThenByTime: dpkg and rpm order dots, digits and plus signs alike, and a dash would end the version.
func TestPackageVersionsAreOrderedByTagsAndThenByTime(t *testing.T) {
	when := time.Date(2026, 11, 23, 9, 41, 0, 0, time.UTC)
	for describe, want := range map[string]string{
		"v1.2.3":                  "1.2.3",
		"v1.2.3-5-g2d74c5c":       "1.2.3+5.g2d74c5c",
		"v1.2.3-5-g2d74c5c-dirty": "1.2.3+5.g2d74c5c.dirty",
		"v1.2.3-rc.1":             "1.2.3~rc.1",
		"v1.2.3-rc.1-5-g2d74c5c":  "1.2.3~rc.1+5.g2d74c5c",
		"v1.2.3-dirty":            "1.2.3+dirty",
		"2d74c5c":                 "0.0.0+20261123.094100.2d74c5c",
		"2d74c5c-dirty":           "0.0.0+20261123.094100.2d74c5c.dirty",
		"vendor-import":           "0.0.0+20261123.094100.vendor.import",
	} {
		if got := packageVersion(describe, when); got != want {
			t.Errorf("packageVersion(%q) = %q, want %q", describe, got, want)
		}
	}
}

// TestADirectoryThatHoldsSomethingElseIsNotEmptied: it comes from a command line, such as that of make dist OUT=DIR.
func TestADirectoryThatHoldsSomethingElseIsNotEmptied(t *testing.T) {
	earlier := map[string]string{sumsName: "00  " + packageName + "_1.2.3_amd64.deb\n", packageName + "_1.2.3_amd64.deb": ""}
	for name, c := range map[string]struct {
		files   map[string]string
		root    string // below the directory; empty: elsewhere
		refused string
	}{
		"nothing":                     {},
		"an earlier run":              {files: earlier},
		"a run that was interrupted":  {files: map[string]string{sumsName: "", "half.deb": ""}},
		"somebody's files":            {files: map[string]string{"thesis.tex": "all of it"}, refused: "no SHA256SUMS of an earlier run"},
		"checksums of something else": {files: map[string]string{sumsName: "00  debian.iso\n", "debian.iso": ""}, refused: "no SHA256SUMS of an earlier run"},
		"the tree":                    {files: earlier, root: ".", refused: "the tree is in it"},
		"the tree further below":      {files: earlier, root: "src/tree", refused: "the tree is in it"},
	} {
		t.Run(name, func(t *testing.T) {
			r := release{root: t.TempDir(), out: t.TempDir()}
			if c.root != "" {
				r.root = filepath.Join(r.out, c.root)
				if err := os.MkdirAll(r.root, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range c.files {
				if err := os.WriteFile(r.name("%s", name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := r.build(nil) // of no architecture
			for name := range c.files {
				if _, gone := os.Stat(r.name("%s", name)); c.refused != "" && gone != nil {
					t.Errorf("%v, and it was refused", gone)
				}
			}
			if c.refused == "" {
				if r.empty() != nil { // what build has left
					t.Error(r.empty())
				}
			} else if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("error %v; want one that says %q", err, c.refused)
			}
		})
	}
}

// TestTheSettingsOfAPackageNameEachFlagOnce: who takes the # away before a flag, or changes one, finds no second line of it elsewhere.
func TestTheSettingsOfAPackageNameEachFlagOnce(t *testing.T) {
	r := release{root: "../.."}
	unit, settings, err := r.unit("/usr/share/doc/kube-proxy-classic")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(unit), "\nExecStart=/usr/bin/kube-proxy-classic -config="+settingsPath+"\n") {
		t.Error("the unit does not read the settings")
	}
	seen := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#?(\w+):( .+)?$`).FindAllStringSubmatch(string(settings), -1) {
		if seen[m[1]] || m[2] == "" {
			t.Errorf("the line %q is there twice, or has no value", m[0])
		}
		seen[m[1]] = true
	}
	for _, name := range []string{"etcd_servers", "registry_dir", "kubeconfig", "allowed_ports", "takeover"} {
		if !seen[name] {
			t.Errorf("there is no line for %s", name)
		}
	}
}

// TestTheProfileForAppArmorIsTheUnits: the unit names it, it lets through the paths of the package and the unit's directories, and it only complains.
func TestTheProfileForAppArmorIsTheUnits(t *testing.T) {
	r := release{root: "../.."}
	unit, _, err := r.unit("/usr/share/doc/kube-proxy-classic")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/kube-proxy-classic.apparmor")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"AppArmorProfile=-kube-proxy-classic", "StateDirectory=kube-proxy-classic", "LogsDirectory=kube-proxy-classic", "RuntimeDirectory=kube-proxy-classic"} {
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("the unit has no line %s", line)
		}
	}
	for _, rule := range []string{
		"profile kube-proxy-classic flags=(complain, attach_disconnected) {", "  /usr/bin/kube-proxy-classic mrix,", "  /etc/kube-proxy-classic/** r,",
		"  /var/lib/{,private/}kube-proxy-classic/** rwk,", "  /var/log/{,private/}kube-proxy-classic/** rw,", "  @{run}/{,private/}kube-proxy-classic/** rwk,",
		"  @{run}/systemd/notify w,", "  include if exists <local/kube-proxy-classic>",
	} {
		if !strings.Contains(string(text), "\n"+rule+"\n") {
			t.Errorf("the profile has no line %q", rule)
		}
	}
}
