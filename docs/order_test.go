package docs

import (
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostLines bounds a package without its tests. Two that all others lean on stay smaller.
const mostLines = 2500

var smaller = map[string]int{"proxy/engine": 1200, "proxy/balance": 1200}

func TestNoPackageIsLarge(t *testing.T) {
	for _, p := range packages(t) {
		if forTests(p.ImportPath) {
			continue
		}
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go")) // those of other systems included
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines += strings.Count(string(text), "\n")
		}
		most := mostLines
		if n, ok := smaller[strings.TrimPrefix(p.ImportPath, module+"/")]; ok {
			most = n
		}
		if lines > most {
			t.Errorf("%s has %d lines without tests; want %d at most", p.ImportPath, lines, most)
		}
	}
}

// TestTheFilesOfAPackageHaveAnOrder: a package can be read from its first file to its last, with few glances ahead. There is an order of
// its files in which at most a tenth of the references between them point up.
//
// A reference is a pair of a file and an object of the package that it names and another file declares: a type, a function, a method,
// a variable or a constant. It counts once, however often the file names the object. Fields do not count, for their types do.
func TestTheFilesOfAPackageHaveAnOrder(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as go vet in make check, which has compiled all packages by then
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	exports := make(map[string]string)
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p struct {
			goPackage
			Export string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if ours(p.ImportPath) {
			all = append(all, p.goPackage)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	found := 0
	for _, p := range all {
		references := referencesOf(t, p, fset, imports)
		order := references.order()
		total, up := references.total(), references.up(order)
		found += total
		if up*10 > total {
			var names []string
			for _, i := range order {
				names = append(names, p.GoFiles[i])
			}
			t.Errorf("%s: %d of %d references between files point up, in the order %s; want a tenth at most", p.ImportPath, up, total, strings.Join(names, " "))
		}
	}
	if found < 1000 {
		t.Errorf("there are %d references between files: they were not found", found)
	}
}

// References are how many objects of one file another names: of the file that names them, by the index of both.
type references [][]int

func referencesOf(t *testing.T, p goPackage, fset *token.FileSet, imports types.Importer) references {
	t.Helper()
	var files []*ast.File
	index := make(map[string]int)
	r := make(references, len(p.GoFiles))
	for i, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		index[path], r[i] = i, make([]int, len(p.GoFiles))
	}
	info := types.Info{Uses: make(map[*ast.Ident]types.Object)}
	checker := types.Config{Importer: imports}
	pkg, err := checker.Check(p.ImportPath, fset, files, &info)
	if err != nil {
		t.Fatal(err)
	}
	type naming struct {
		file   int
		object types.Object
	}
	named := make(map[naming]bool)
	for name, object := range info.Uses {
		if object.Pkg() != pkg {
			continue
		}
		method := false
		if f, ok := object.(*types.Func); ok {
			object, method = f.Origin(), f.Signature().Recv() != nil // of each instance of a generic type the same
		}
		if !method && object.Parent() != pkg.Scope() {
			continue // a field, or local to a function
		}
		from, to := index[fset.Position(name.Pos()).Filename], index[fset.Position(object.Pos()).Filename]
		if n := (naming{from, object}); from != to && !named[n] {
			named[n] = true
			r[from][to]++
		}
	}
	return r
}

func (r references) total() (n int) {
	for _, of := range r {
		for _, count := range of {
			n += count
		}
	}
	return n
}

// up counts the references that point up, when files stand in this order from the bottom.
func (r references) up(order []int) (n int) {
	for at, from := range order {
		for _, to := range order[at+1:] {
			n += r[from][to]
		}
	}
	return n
}

// order returns a good order of the files from the bottom: one that no move of a single file makes better.
func (r references) order() []int {
	order := make([]int, len(r))
	for i := range order {
		order[i] = i
	}
	best := r.up(order)
	for better := true; better; {
		better = false
		for file := range r {
			rest := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return i == file })
			for at := range order {
				moved := slices.Insert(slices.Clone(rest), at, file)
				if up := r.up(moved); up < best {
					order, best, better = moved, up, true
				}
			}
		}
	}
	return order
}
