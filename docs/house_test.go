// Package docs holds no code: its tests keep the documents and the layout of the house true.
package docs

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// root is the top of the repository, seen from here.
const root = ".."

const module = "kubeproxy"

// A goPackage is what `go list` says of one package of ours.
type goPackage struct {
	ImportPath string
	Dir        string
	Name       string
	Doc        string
	GoFiles    []string
	Imports    []string // of the package itself
	Deps       []string // of everything below it too
}

// packages returns all packages of ours that have files for this system.
func packages(t *testing.T) []goPackage {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

var listed = sync.OnceValues(func() (all []goPackage, err error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Doc,GoFiles,Imports,Deps", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			return nil, err
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
	return all, nil
})

// ours reports whether a package belongs to this module.
func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// inside reports whether a package is room, or one below it.
func inside(importPath, room string) bool {
	return importPath == module+"/"+room || strings.HasPrefix(importPath, module+"/"+room+"/")
}

// forTests reports whether a package is a helper that only tests may import.
func forTests(importPath string) bool { return strings.HasSuffix(importPath, "test") }

// isWireFormat reports whether a package is protowire, which reads and writes the numbers of protobuf, or what it needs.
func isWireFormat(importPath string) bool {
	return slices.Contains([]string{"google.golang.org/protobuf/encoding/protowire",
		"google.golang.org/protobuf/internal/errors", "google.golang.org/protobuf/internal/detrand"}, importPath)
}

// isEtcd reports whether a package is the etcd source, or of etcd itself.
func isEtcd(importPath string) bool {
	return inside(importPath, "config/etcdsource") || strings.HasPrefix(importPath, "go.etcd.io/")
}

// isSource reports whether a package is a source beside the etcd source: one whose name says so.
func isSource(importPath string) bool {
	below, ok := strings.CutPrefix(importPath, module+"/config/")
	name, _, _ := strings.Cut(below, "/")
	return ok && strings.HasSuffix(name, "source") && name != "etcdsource"
}

// wires reports whether a package puts the program together, or tests and measures all of it.
func wires(importPath string) bool {
	return inside(importPath, "cmd/kube-proxy") || inside(importPath, "cmd/playground") || inside(importPath, "scripts") || forTests(importPath)
}

// speaksEtcd reports whether a package may need etcd: the source, who registers instances there, the programs that wire them, and what
// tests and measures them.
func speaksEtcd(importPath string) bool {
	return inside(importPath, "config/etcdsource") || inside(importPath, "cmd/internal/register") || inside(importPath, "cmd/internal/edit") || wires(importPath)
}

func TestArrowsPointOneWayOnly(t *testing.T) {
	all := packages(t)
	if len(all) < 6 {
		t.Fatalf("go list found %d packages; want all of them", len(all))
	}
	for _, p := range all {
		for _, dep := range p.Deps {
			switch {
			case p.ImportPath == module+"/registry" && ours(dep) && dep != p.ImportPath && dep != module+"/registry/patroni": // which is of PostgreSQL's words, and needs no other
				t.Errorf("%s needs %s: it has the words, and how records are spelled stands above it", p.ImportPath, dep)
			case inside(p.ImportPath, "registry"):
				if ours(dep) && !inside(dep, "registry") || strings.Contains(strings.Split(dep, "/")[0], ".") && !isWireFormat(dep) {
					t.Errorf("%s needs %s: registry imports the standard library and protowire only", p.ImportPath, dep)
				}
			case inside(p.ImportPath, "config"):
				if inside(dep, "proxy") || inside(dep, "cmd") {
					t.Errorf("%s needs %s: config does not know how traffic moves", p.ImportPath, dep)
				}
			case inside(p.ImportPath, "proxy"):
				if inside(dep, "config") || inside(dep, "cmd") {
					t.Errorf("%s needs %s: proxy does not know where state comes from", p.ImportPath, dep)
				}
			}
			if isSource(dep) && !isSource(p.ImportPath) && !wires(p.ImportPath) {
				t.Errorf("%s needs %s: sources stand behind config.Source, and only their wiring names them", p.ImportPath, dep)
			}
			if isEtcd(dep) && isSource(p.ImportPath) && !forTests(p.ImportPath) {
				t.Errorf("%s needs %s: only the source of etcd 3 needs etcd's client", p.ImportPath, dep)
			}
			if isEtcd(dep) && !speaksEtcd(p.ImportPath) {
				t.Errorf("%s needs %s: sources stand behind config.Source, and only their wiring names them", p.ImportPath, dep)
			}
			if forTests(dep) && ours(dep) && !forTests(p.ImportPath) {
				t.Errorf("%s needs %s, which is for tests", p.ImportPath, dep)
			}
		}
		for _, dep := range p.Imports {
			switch {
			case inside(p.ImportPath, "registry") && slices.Contains([]string{"os", "syscall", "net/http", "time/tzdata"}, dep):
				t.Errorf("%s imports %s: registry does no I/O", p.ImportPath, dep)
			case inside(p.ImportPath, "proxy") && dep == "encoding/json" && !forTests(p.ImportPath):
				t.Errorf("%s imports %s: proxy knows no JSON", p.ImportPath, dep)
			}
		}
	}
}

// proxyLevels are the packages of proxy from the bottom up. A package imports only those of lower levels, so no two of one level know
// each other. A package without a line that imports proxy/engine is an engine. Engines stand just below proxy.
var proxyLevels = [][]string{
	{"proxy/sockopt", "proxy/traffic", "proxy/epoll/ring", "proxy/balance/affinity", "proxy/anyip", "proxy/balance/news", "proxy/balance/positions", "proxy/proxyproto", "proxy/kernel/forwarding"},
	{"proxy/removal", "proxy/ports"},
	{"proxy/handover"},
	{"proxy/balance/checks", "proxy/balance/health"},
	{"proxy/balance/rotation", "proxy/admit"},
	{"proxy/engine"},
	{"proxy/tcp", "proxy/udp", "proxy/kernel"},
	{"proxy/epoll/socket"},
	{"proxy/epoll/reactor"},
	{"proxy/epoll/datagrams", "proxy/epoll/relay"},
	{"proxy/balance"}, // and engines
	{"proxy"},
}

func TestThePackagesOfProxyImportOnlyWhatStandsBelow(t *testing.T) {
	level := make(map[string]int)
	for i, names := range proxyLevels {
		for _, name := range names {
			level[module+"/"+name] = i
		}
	}
	for _, p := range packages(t) {
		if _, known := level[p.ImportPath]; !known && inside(p.ImportPath, "proxy") && !forTests(p.ImportPath) && slices.Contains(p.Imports, module+"/proxy/engine") {
			level[p.ImportPath] = len(proxyLevels) - 2
		}
	}
	found := 0
	for _, p := range packages(t) {
		if !inside(p.ImportPath, "proxy") || forTests(p.ImportPath) {
			continue
		}
		own, ok := level[p.ImportPath]
		if !ok {
			t.Errorf("%s has no level in proxyLevels", p.ImportPath)
			continue
		}
		found++
		for _, dep := range p.Imports {
			if l, ok := level[dep]; ok && l >= own {
				t.Errorf("%s imports %s, which does not stand below it", p.ImportPath, dep)
			}
		}
	}
	if found != len(level) {
		t.Errorf("%d of %d packages were found", found, len(level))
	}
}

// TestTheProductKnowsNeitherTestingNorThePage: the page has a time that stands still, and the product must not be able to.
func TestTheProductKnowsNeitherTestingNorThePage(t *testing.T) {
	found := false
	for _, p := range packages(t) {
		if p.ImportPath != module+"/cmd/kube-proxy" {
			continue
		}
		found = true
		for _, dep := range p.Deps {
			if dep == "testing" || strings.HasPrefix(dep, "testing/") || inside(dep, "scripts") {
				t.Errorf("%s needs %s", p.ImportPath, dep)
			}
		}
	}
	if !found {
		t.Error("cmd/kube-proxy was not found")
	}
}

// TestTheArchitectureIsReadInOneSitting: what has no room there stands beside its code, or in docs/where-to-look.md.
func TestTheArchitectureIsReadInOneSitting(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > 2500 {
		t.Errorf("ARCHITECTURE.md has %d words; want 2500 at most", n)
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = ""
		}
		if !strings.HasPrefix(p.Doc, want) || len(p.Doc) < 40 {
			t.Errorf("%s: its doc begins %q; want a sentence that begins %q", p.ImportPath, p.Doc, want)
		}
		if base := filepath.Base(p.ImportPath); slices.Contains([]string{"util", "utils", "common", "types", "helpers"}, base) {
			t.Errorf("%s: %q says nothing", p.ImportPath, base)
		}
	}
}

// TestEachExportedNameOfProxyHasADocComment: what is exported is used by who has not read the package. Names that are declared in
// one group may share the comment of the group.
func TestEachExportedNameOfProxyHasADocComment(t *testing.T) {
	for _, p := range packages(t) {
		if !inside(p.ImportPath, "proxy") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go")) // those of other systems included
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				for _, name := range undocumented(d) {
					if forTests(p.ImportPath) && isMethod(d) && aTest.MatchString(name.Name) {
						continue // its name is the promise, as that of a test in a file for tests
					}
					t.Errorf("%s: %s has no doc comment", fset.Position(name.Pos()), name.Name)
				}
			}
		}
	}
}

// undocumented returns the exported names of a declaration that have no comment.
func undocumented(d ast.Decl) (names []*ast.Ident) {
	add := func(doc *ast.CommentGroup, declared ...*ast.Ident) {
		for _, name := range declared {
			if name.IsExported() && doc == nil {
				names = append(names, name)
			}
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		add(d.Doc, d.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				add(cmp.Or(s.Doc, d.Doc), s.Name)
			case *ast.ValueSpec:
				add(cmp.Or(s.Doc, s.Comment, d.Doc), s.Names...)
			}
		}
	}
	return names
}

func isMethod(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	return ok && f.Recv != nil
}

// testNames finds every test, fuzz target, benchmark and example of the module. In a package for tests, methods are tests, too: those
// of a suite.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go") && !(strings.HasSuffix(path, ".go") && forTests(filepath.Dir(path))):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && (f.Recv == nil || forTests(filepath.Dir(path))) {
				names[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
