package main

import (
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
