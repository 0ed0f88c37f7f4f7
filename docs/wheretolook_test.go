package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhereToLookLeadsToWhatItNames: each file of docs/where-to-look.md exists and declares the functions that stand behind it. A
// question about clients has a file of both engines or of none, each in its column.
func TestWhereToLookLeadsToWhatItNames(t *testing.T) {
	text, err := os.ReadFile("where-to-look.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z_0-9/]+\\.go)`(?: \\(([^)]+)\\))?")
	rows := 0
	for n, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		rows++
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			declared := functions(t, m[1])
			for _, name := range strings.Split(m[2], ", ") {
				if name != "" && !declared[name] {
					t.Errorf("where-to-look.md:%d: %s declares no function %s", n+1, m[1], name)
				}
			}
		}
		if cells := strings.Split(strings.Trim(line, "| "), " | "); len(cells) == 4 && strings.Contains(line, "`") {
			portable, epoll := strings.Contains(cells[2], "`proxy/portable/"), strings.Contains(cells[3], "`proxy/epoll/")
			if portable != epoll || !portable && (cells[2] != "–" || cells[3] != "–") {
				t.Errorf("where-to-look.md:%d: the engines have %s and %s; want a file of each, or a dash for both", n+1, cells[2], cells[3])
			}
		}
	}
	if rows < 20 {
		t.Errorf("where-to-look.md has only %d rows", rows)
	}
}

// TestNamesOfArticlesLeadToOurFiles: evolution.md explains each identifier that articles on kube-proxy name, and the functions that it gives for them
// are declared in their files.
func TestNamesOfArticlesLeadToOurFiles(t *testing.T) {
	names, err := os.ReadFile("testdata/names-of-articles.txt")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("evolution.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := make(map[string]bool)
	ours := regexp.MustCompile(`\]\(\.\./([a-z_0-9/-]+\.go)\) \(([^)]+)\)`)
	for n, line := range strings.Split(string(text), "\n") {
		if cells := strings.Split(line, " | "); len(cells) == 5 {
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
				explained[m[1]] = true
			}
		}
		for _, m := range ours.FindAllStringSubmatch(line, -1) {
			declared := functions(t, m[1])
			for name := range strings.SplitSeq(m[2], ", ") {
				if !declared[name] {
					t.Errorf("evolution.md:%d: %s declares no function %s", n+1, m[1], name)
				}
			}
		}
	}
	for name := range strings.FieldsSeq(string(names)) {
		if !explained[name] {
			t.Errorf("evolution.md does not explain %s", name)
		}
	}
}

// functions returns the names of the functions and methods that a file declares.
func functions(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names[f.Name.Name] = true
		}
	}
	return names
}
