package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamesInTheDocsExist reads every document, and looks up what it names: each path, each flag of
// kube-proxy, also in commands, each Go symbol (as package.Name), each test, each make target, each link.
func TestNamesInTheDocsExist(t *testing.T) {
	t.Parallel()
	known := names{
		tests:   testNames(t),
		symbols: symbols(t),
		flags:   flagNames(t, "check", "register", "get", "put", "status", "log", "sessions", "kill", "wait", "drain", "disable", "enable", "weight", "drain-node", "names"),
		targets: makeTargets(t),
	}
	documents := documents(t)
	if len(documents) < 5 {
		t.Fatalf("found only the documents %q", documents)
	}
	for _, document := range documents {
		text, err := os.ReadFile(filepath.Join(root, document))
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, problem := range known.check(filepath.Dir(document), line) {
				t.Errorf("%s:%d: %s", document, n+1, problem)
			}
		}
	}
}

// names is what there is.
type names struct {
	tests   map[string]bool
	symbols map[string]map[string]bool // by package name
	flags   map[string]bool            // without the dash
	targets map[string]bool
}

var (
	code   = regexp.MustCompile("`([^`]+)`")
	link   = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	makeOf = regexp.MustCompile(`^\s*make ([a-z][a-z0-9-]*)`)

	aCommand = regexp.MustCompile(`^ {4,}.*\bkube-proxy(?::\S+)? (.*)$`) // in a block of code
	itsEnd   = regexp.MustCompile(` (--|#|\||&|>) ?`)
	itsFlag  = regexp.MustCompile(`(?:^| )--?([a-z][a-z0-9_-]*)(?:=\S*)?`)

	aTest   = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z]\w*$`)
	aFlag   = regexp.MustCompile(`^--?([a-z][a-z0-9_-]*)(=\S*)?$`)
	aSymbol = regexp.MustCompile(`^([a-z]+)\.([A-Za-z]\w*)(?:\.([A-Za-z]\w*))?(?:\(\))?$`)
	aPath   = regexp.MustCompile(`^[A-Za-z0-9_.*-]+(/[A-Za-z0-9_.*-]+)*/?$`)
	aFile   = regexp.MustCompile(`\.(go|md|mod|sh|yaml)$`)
)

// check gives what is wrong with the names in a line of a document that lies in dir.
func (k names) check(dir, line string) []string {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, m := range link.FindAllStringSubmatch(line, -1) {
		if !strings.Contains(m[1], "://") && !exists(filepath.Join(dir, m[1])) {
			wrong("the link to %s leads nowhere", m[1])
		}
	}
	if m := makeOf.FindStringSubmatch(line); m != nil && !k.targets[m[1]] {
		wrong("there is no make target %s", m[1])
	}
	if m := aCommand.FindStringSubmatch(line); m != nil && !strings.Contains(line, "etcdctl ") {
		for _, f := range itsFlag.FindAllStringSubmatch(itsEnd.Split(m[1], 2)[0], -1) {
			if !k.flags[strings.ReplaceAll(f[1], "-", "_")] {
				wrong("kube-proxy has no flag -%s", f[1])
			}
		}
	}
	for _, m := range code.FindAllStringSubmatch(line, -1) {
		word := m[1]
		if m := makeOf.FindStringSubmatch(word); m != nil && !k.targets[m[1]] {
			wrong("there is no make target %s", m[1])
		}
		if aTest.MatchString(word) && !k.tests[word] {
			wrong("there is no test %s", word)
		}
		if m := aFlag.FindStringSubmatch(word); m != nil && !k.flags[strings.ReplaceAll(m[1], "-", "_")] {
			wrong("kube-proxy has no flag %s", word)
		}
		if m := aSymbol.FindStringSubmatch(word); m != nil && !aFile.MatchString(word) {
			if of, ours := k.symbols[m[1]]; ours && (!of[m[2]] || m[3] != "" && !of[m[2]+"."+m[3]]) {
				wrong("there is no symbol %s", word)
			}
		}
		path := strings.TrimPrefix(word, "./")
		if aPath.MatchString(path) && (strings.Contains(path, "/") || aFile.MatchString(path)) {
			path = strings.TrimPrefix(path, module+"/") // an import path
			built := strings.HasPrefix(path, "bin/")    // it is there only after make
			if path != strings.ToUpper(path) && !built && !exists(path) && !exists(filepath.Join(dir, path)) {
				wrong("there is no file %s", word)
			}
		}
	}
	return problems
}

// exists reports whether something in the repository is called like this; a star stands for anything.
func exists(path string) bool {
	found, err := filepath.Glob(filepath.Join(root, path))
	return err == nil && len(found) > 0
}

// documents finds every document of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			path, err = filepath.Rel(root, path)
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// symbols finds every name that is declared at the top of a package, methods and fields as Type.Name,
// by the name of the package.
func symbols(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := make(map[string]map[string]bool)
	for _, p := range packages(t) {
		if p.Name == "main" {
			continue
		}
		of := make(map[string]bool)
		all[p.Name] = of
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				declare(of, decl)
			}
		}
	}
	return all
}

func declare(of map[string]bool, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil {
			of[decl.Name.Name] = true
			return
		}
		of[receiver(decl.Recv.List[0].Type)+"."+decl.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					of[name.Name] = true
				}
			case *ast.TypeSpec:
				of[spec.Name.Name] = true
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, name := range field.Names {
							of[spec.Name.Name+"."+name.Name] = true
						}
					}
				}
			}
		}
	}
}

// receiver gives the name of the type that a method belongs to.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// flagNames returns the flags of the program, and of the words that its first argument may be.
func flagNames(t *testing.T, words ...string) map[string]bool {
	t.Helper()
	flags := map[string]bool{"h": true}
	aSection := regexp.MustCompile(`(?m)^[A-Z].*: .*$`)
	all := help(t, "all")
	starts := aSection.FindAllStringIndex(all, -1)
	for i, at := range starts {
		if strings.Contains(all[at[0]:at[1]], "(of kube-proxy ") {
			continue // flags that only a word has
		}
		end := len(all)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		addFlags(flags, all[at[1]:end])
	}
	for _, word := range words {
		addFlags(flags, help(t, word))
	}
	if len(flags) < 20 {
		t.Fatalf("kube-proxy help all names only the flags %v", flags)
	}
	return flags
}

func addFlags(flags map[string]bool, text string) {
	for _, m := range regexp.MustCompile(`(?m)^  -(\w+)`).FindAllStringSubmatch(text, -1) {
		flags[m[1]] = true
	}
}

// help is what the program prints about a word.
func help(t *testing.T, word string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./cmd/kube-proxy", "help", word)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kube-proxy help %s: %v\n%s", word, err, text)
	}
	return string(text)
}

func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(string(text), -1) {
		targets[m[1]] = true
	}
	return targets
}
