//go:build browser

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubeproxy/internal/browsertest"
)

// TestInABrowserTheBookIsReadFromAFile, without a network: `make browser` runs it, once `make book` has made the book. Every identifier of the articles is found
// by the search; from the first page a reader comes to a chapter, to the next one, and to the declaration that it names.
func TestInABrowserTheBookIsReadFromAFile(t *testing.T) {
	path, err := filepath.Abs("../bin/book/index.html")
	if _, missing := os.Stat(path); err != nil || missing != nil {
		t.Fatalf("%v, %v: make book makes it", err, missing)
	}
	names, err := os.ReadFile("testdata/names-of-articles.txt")
	if err != nil {
		t.Fatal(err)
	}
	b := browsertest.Open(t, browsertest.Browse(t), "file://"+path)
	shows := func(expression, want string) {
		t.Helper()
		b.Await(expression, func(got string) bool { return strings.Contains(got, want) }, want)
	}
	shows("document.title", "kube-proxy")
	found := 0
	for name := range strings.FieldsSeq(string(names)) {
		b.Eval(fmt.Sprintf("(q => { q.value = %q; q.dispatchEvent(new Event('input')) })(document.querySelector('#q'))", name))
		if hits := b.Eval("document.querySelectorAll('#found a').length"); hits == "0" {
			t.Errorf("the search does not find %s", name)
		}
		found++
	}
	if found < 40 {
		t.Errorf("there are %d names of articles", found)
	}
	follow := func(selector string) {
		t.Helper()
		b.Eval("(document.querySelector('" + selector + "') ?? {}).click?.()")
	}
	follow("nav a[href$=\"book/README.html\"]")
	shows("document.querySelector('h1').textContent", "A path through it")
	follow("main a[href$=\"03-when-it-does-not-answer.html\"]")
	shows("document.querySelector('h1').textContent", "3. When it does not answer")
	b.ShootWindow("../bin/book-chapter.png")
	follow("main a[href$=\"race.go.html#Race.Next\"]")
	shows("document.querySelector('h1').textContent", "proxy/tcp/race.go")
	shows("document.querySelector('b:target + span').textContent", "// Next")
	if away := b.Eval("Math.abs(document.querySelector('b:target').getBoundingClientRect().top) < innerHeight"); away != "true" {
		t.Error("the page of a source does not begin at the declaration")
	}
	b.ShootWindow("../bin/book-source.png")
	b.Eval("history.back()")
	shows("document.querySelector('h1').textContent", "3. When it does not answer")
	follow("a[rel=next]")
	shows("document.querySelector('h1').textContent", "4. Saying goodbye")
}
