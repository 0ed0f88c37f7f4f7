package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheBookHasAPageForEachDocumentAndNoDeadLink.
func TestTheBookHasAPageForEachDocumentAndNoDeadLink(t *testing.T) {
	out := filepath.Join(t.TempDir(), "book")
	n, err := build("../..", out)
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Errorf("the book has %d pages", n)
	}
	for _, name := range []string{"index.html", "docs/operating.html", "docs/lab/README.html", "docs/monitoring/README.html", "docs/monitoring/alerts.yml"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	index, err := os.ReadFile(filepath.Join(out, "search.js"))
	if err != nil || len(index) > 400_000 || !strings.Contains(string(index), `"Anchor":"kubeproxydown"`) {
		t.Errorf("the index of the search takes %d bytes, %v", len(index), err)
	}
}

// site writes documents into a directory of their own.
func site(t *testing.T, documents map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range documents {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestALinkThatLeadsNowhereIsAnError(t *testing.T) {
	for link, want := range map[string]string{
		"docs/README.md":         "",
		"docs/README.md#a-b":     "",
		"LICENSE":                "",
		"https://example.com/x":  "",
		"docs/missing.md":        "leads nowhere",
		"docs/README.md#missing": "no heading",
		"#missing":               "no heading",
		"docs":                   "leads nowhere",
		"../outside":             "leads nowhere",
	} {
		root := site(t, map[string]string{"README.md": "# One\n\n[link](" + link + ")\n", "docs/README.md": "# Two\n\n## A: `B`!\n", "LICENSE": "free"})
		_, err := build(root, filepath.Join(t.TempDir(), "book"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("with a link to %s: %v; want %q", link, err, want)
		}
	}
}

func TestAPageLeadsToPagesAndHasNoHTMLOfItsDocument(t *testing.T) {
	root := site(t, map[string]string{
		"README.md":      "# One\n\n[two](docs/two.md#part), [files](LICENSE)\n\n<script>alert(1)</script>\n",
		"docs/README.md": "# Docs\n\n[two](two.md) [one](../README.md)\n",
		"docs/two.md":    "# Two\n\n## Part\n\nwords\n", "LICENSE": "free",
	})
	out := filepath.Join(t.TempDir(), "book")
	if _, err := build(root, out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"index.html": `href="docs/two.html#part"`, "docs/README.html": `href="../index.html"`, "LICENSE": "free"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "alert(1)") {
			t.Errorf("%s, %v: %s; want %s", name, err, text, want)
		}
	}
}
