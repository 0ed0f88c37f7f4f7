package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kubeproxy/config/etcdconfig"
)

// A promise is one row of a table of docs/guarantees.md.
type promise struct {
	line   int
	id     string // a letter and a number
	heldBy string // the last cell
}

// notPromised is the letter of the rows that nothing has to hold.
const notPromised = 'N'

func promises(t *testing.T) []promise {
	t.Helper()
	text, err := os.ReadFile("guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`^[A-Z]\d+$`)
	var all []promise
	for n, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if first := strings.TrimSpace(cells[0]); strings.HasPrefix(line, "|") && id.MatchString(first) {
			all = append(all, promise{n + 1, first, cells[len(cells)-1]})
		}
	}
	return all
}

// TestEachPromiseIsHeldBySomething reads docs/guarantees.md. Every promise must name a test or a fault
// of the chaos run, and what is named must exist. Every fault must be named: one that holds nothing
// is either not needed, or a promise that was forgotten.
func TestEachPromiseIsHeldBySomething(t *testing.T) {
	tests, faults := testNames(t), chaosFaults(t)
	last := make(map[byte]int)
	named := make(map[string]bool)
	for _, p := range promises(t) {
		where := fmt.Sprintf("guarantees.md:%d: %s", p.line, p.id)
		number, err := strconv.Atoi(p.id[1:])
		if letter := p.id[0]; err != nil || number != last[letter]+1 {
			t.Errorf("%s follows %c%d", where, letter, last[letter])
		}
		last[p.id[0]] = number
		holders := 0
		for _, m := range code.FindAllStringSubmatch(p.heldBy, -1) {
			fault, isFault := strings.CutPrefix(m[1], "chaos ")
			switch {
			case isFault && !faults[fault]:
				t.Errorf("%s is to be held by the fault %q, which scripts/chaos does not have", where, fault)
			case aTest.MatchString(m[1]) && !tests[m[1]]:
				t.Errorf("%s is to be held by %s, which does not exist", where, m[1])
			case isFault:
				named[fault] = true
				holders++
			case aTest.MatchString(m[1]):
				holders++
			}
		}
		if holders == 0 && p.id[0] != notPromised {
			t.Errorf("%s is held by nothing", where)
		}
	}
	if len(last) < 5 {
		t.Errorf("guarantees.md has promises of the kinds %v only", last)
	}
	for fault := range faults {
		if !named[fault] {
			t.Errorf("no promise of guarantees.md names the fault %q", fault)
		}
	}
}

// TestTheBoundsAreThoseOfTheCode compares the figures of docs/guarantees.md with the source's.
func TestTheBoundsAreThoseOfTheCode(t *testing.T) {
	text, err := os.ReadFile("guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range map[string]fmt.Stringer{
		"ProbePeriod":    etcdconfig.DefaultProbePeriod,
		"DialTimeout":    etcdconfig.DefaultDialTimeout,
		"RequestTimeout": etcdconfig.DefaultRequestTimeout,
		"SyncPeriod":     etcdconfig.DefaultSyncPeriod,
	} {
		if row := fmt.Sprintf("\n| `%s` | %v |", field, value); !strings.Contains(string(text), row) {
			t.Errorf("guarantees.md has no row that begins %q", row[1:])
		}
	}
	for row, want := range map[string]string{
		"L3": fmt.Sprintf("%v + ", 3*etcdconfig.DefaultProbePeriod),
		"L5": fmt.Sprintf("%v + ", max(etcdconfig.DefaultDialTimeout, 3*etcdconfig.DefaultProbePeriod)+1e9),
		"L6": fmt.Sprintf("%v + ", max(etcdconfig.DefaultRequestTimeout, 3*etcdconfig.DefaultProbePeriod)+1e9),
		"L7": fmt.Sprintf("%v + ", etcdconfig.DefaultSyncPeriod*6/5+3*etcdconfig.DefaultProbePeriod),
	} {
		found := false
		for line := range strings.Lines(string(text)) {
			cells := strings.Split(line, "|")
			if len(cells) > 4 && strings.TrimSpace(cells[1]) == row {
				found = strings.HasPrefix(strings.ReplaceAll(strings.TrimSpace(cells[4]), " s", "s"), want)
			}
		}
		if !found {
			t.Errorf("guarantees.md: the default of %s does not begin with %q", row, want)
		}
	}
}

// chaosFaults finds the faults that scripts/chaos declares: literals of the type Fault, with a name.
func chaosFaults(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "scripts", "chaos", "faults", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	faults := make(map[string]bool)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if of, ok := literal.Type.(*ast.Ident); !ok || of.Name != "Fault" {
				return true
			}
			for _, element := range literal.Elts {
				pair, ok := element.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				field, _ := pair.Key.(*ast.Ident)
				value, _ := pair.Value.(*ast.BasicLit)
				if field == nil || field.Name != "Name" || value == nil {
					continue
				}
				fault, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				faults[fault] = true
			}
			return true
		})
	}
	if len(faults) == 0 {
		t.Errorf("scripts/chaos declares no faults")
	}
	t.Logf("faults: %q", slices.Sorted(maps.Keys(faults)))
	return faults
}
