package main

import (
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
		"2d74c5c":                 "0.0.0+20261123.094100.2d74c5c",
		"2d74c5c-dirty":           "0.0.0+20261123.094100.2d74c5c.dirty",
		"vendor-import":           "0.0.0+20261123.094100.vendor.import",
	} {
		if got := packageVersion(describe, when); got != want {
			t.Errorf("packageVersion(%q) = %q, want %q", describe, got, want)
		}
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
