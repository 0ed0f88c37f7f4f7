package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
	chapter, err := os.ReadFile(filepath.Join(out, "docs/book/03-when-it-does-not-answer.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<a href="../../proxy/tcp/race.go.html#Race.Next">`, `rel="prev" href="../../docs/book/02-who-is-next.html"`, `rel="next" href="../../docs/book/04-saying-goodbye.html"`} {
		if !strings.Contains(string(chapter), want) {
			t.Errorf("a chapter of the book lacks %s", want)
		}
	}
	index, err := os.ReadFile(filepath.Join(out, "search.js"))
	if err != nil || len(index) > 450_000 || !strings.Contains(string(index), `"Anchor":"kubeproxydown"`) {
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
		"a.go":                   "",
		"a.go#T.Do":              "",
		"a.go#x":                 "",
		"a.go#T.Gone":            "a.go does not declare T.Gone",
		"b.go":                   "leads nowhere",
	} {
		root := site(t, map[string]string{"README.md": "# One\n\n[link](" + link + ")\n", "docs/README.md": "# Two\n\n## A: `B`!\n", "LICENSE": "free",
			"a.go": "package a\n\n// T is one.\ntype T[E any] struct{}\n\nfunc (t *T[E]) Do() {}\n\nconst x = \"<b>\"\n"})
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

func TestTheOrderOfTheBookIsThatOfItsIndex(t *testing.T) {
	root := site(t, map[string]string{
		"README.md": "# One\n", "NEWS.md": "# News\n",
		"docs/README.md": "# Docs\n\n## Learn\n\n[b](b.md), [school](s/README.md)\n\n## Do\n\n[a](a.md) and again [b](b.md)\n",
		"docs/a.md":      "# A\n", "docs/b.md": "# B\n",
		"docs/s/README.md": "# School\n\n## Part\n\n[two](2.md) [one](1.md) [a](../a.md)\n", "docs/s/1.md": "# First\n", "docs/s/2.md": "# Second\n",
	})
	all, err := parts(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range all {
		got = append(got, p.Title+": "+strings.Join(p.sources, " "))
	}
	want := "The book: README.md docs/README.md\nLearn: docs/b.md docs/s/README.md docs/s/2.md docs/s/1.md\nDo: docs/a.md\nMore: NEWS.md"
	if strings.Join(got, "\n") != want {
		t.Errorf("the parts are\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

func TestThePageOfASourceShowsItAsItIs(t *testing.T) {
	root := site(t, map[string]string{"README.md": "# One\n\n[Do](a.go#T.Do)\n", "docs/README.md": "# Docs\n",
		"a.go": "package a\n\n// T is one.\ntype T[E any] struct{}\n\n// Do does nothing.\nfunc (t *T[E]) Do() {}\n\nconst x = \"<b>\"\n"})
	out := filepath.Join(t.TempDir(), "book")
	if _, err := build(root, out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "a.go.html"))
	for _, want := range []string{"<b id=\"T\"></b><span class=\"comment\">// T is one.", "<b id=\"T.Do\"></b><span class=\"comment\">// Do does nothing.", "<b id=\"x\"></b><span>const x = &#34;&lt;b&gt;&#34;"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: the page lacks %s:\n%s", err, want, text)
		}
	}
}

// TestTheBookSaysNothingTwice: no sentence of a chapter stands in another document, for chapters link what the reference says.
func TestTheBookSaysNothingTwice(t *testing.T) {
	sentences := regexp.MustCompile(`[A-Z][^.:|\x60\[\]]{50,}\.`)
	said := make(map[string]string)
	chapters := 0
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".md") {
			return err
		}
		text, err := os.ReadFile(name)
		inBook := strings.Contains(name, "docs/book/")
		if inBook {
			chapters++
		}
		for _, s := range sentences.FindAllString(strings.Join(strings.Fields(string(text)), " "), -1) {
			if before := said[s]; before != "" && before != name && (inBook || strings.Contains(before, "docs/book/")) {
				t.Errorf("%s and %s both say: %s", before, name, s)
			}
			said[s] = name
		}
		return err
	})
	if err != nil || chapters != 11 {
		t.Errorf("%d documents in docs/book, %v; want ten chapters and their index", chapters, err)
	}
}
