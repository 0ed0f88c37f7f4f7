package decode

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

	"google.golang.org/protobuf/encoding/protowire"

	"kubeproxy/registry"
	"kubeproxy/registry/names"
)

// manual reads the reference of the record format.
func manual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "records.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A row is one of a table in the manual, below the headings of its section and of its columns.
type row struct {
	section string
	columns []string
	cells   []string
}

// cell gives the cell of a column, "" if there is no such column.
func (r row) cell(column string) string {
	if i := slices.Index(r.columns, column); i >= 0 && i < len(r.cells) {
		return r.cells[i]
	}
	return ""
}

func rows(text string) (all []row) {
	section := ""
	var columns []string
	for line := range strings.SplitSeq(text, "\n") {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section = heading
		}
		if !strings.HasPrefix(line, "|") {
			columns = nil
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		switch {
		case columns == nil:
			columns = cells
		case !strings.HasPrefix(line, "|---"):
			all = append(all, row{section, columns, cells})
		}
	}
	return all
}

// quoted gives the code in a cell.
func quoted(cell string) (all []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestExamplesOfTheManualAreGoodRecords(t *testing.T) {
	tasks, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-do-i.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile(`(?s)etcdctl put (\S+) '([^']*)'`).FindAllStringSubmatch(manual(t)+string(tasks), -1)
	if len(examples) < 12 {
		t.Fatalf("found %d examples", len(examples))
	}
	for _, e := range examples {
		r, warnings, err := Decode(e[1], []byte(e[2]))
		if err != nil || len(warnings) > 0 || r.Dropped > 0 {
			t.Errorf("%s: error %v, warnings %q", e[1], err, warnings)
			continue
		}
		if s := summary(r); strings.Count(s, "/") == 0 {
			t.Errorf("%s serves nothing: %s", e[1], s)
		}
	}
}

func TestWhatTheManualSaysIsRefusedIsRefusedWithThatError(t *testing.T) {
	checked := 0
	for _, r := range rows(manual(t)) {
		key, value := quoted(r.cell("key")), quoted(r.cell("value"))
		if len(key) != 1 || len(value) != 1 {
			continue
		}
		checked++
		record, warnings, err := Decode(key[0], []byte(value[0]))
		checkAnswer(t, record, warnings, err)
		switch wanted := r.cell("error"); {
		case wanted != "" && (err == nil || err.Error() != wanted):
			t.Errorf("%s: error %v; the manual says %s", value[0], err, wanted)
		case wanted == "" && (err != nil || len(warnings) != 1 || string(warnings[0]) != r.cell("warning")):
			t.Errorf("%s: error %v, warnings %q; the manual says %s", value[0], err, warnings, r.cell("warning"))
		}
	}
	if checked < 15 {
		t.Errorf("found %d values", checked)
	}
}

func TestLimitsOfTheManualAreThoseOfTheDecoder(t *testing.T) {
	var got []string
	for _, r := range rows(manual(t)) {
		if n, _, _ := strings.Cut(strings.ReplaceAll(r.cell("at most"), ",", ""), " "); n != "" {
			got = append(got, n)
		}
	}
	if want := fmt.Sprint([]int{registry.MaxRecordBytes, registry.MaxName, maxPortName, MaxServicePorts, registry.MaxSourceRanges, maxCombined, registry.MaxJoined}); fmt.Sprint(got) != want {
		t.Errorf("the manual has %v; want %s", got, want)
	}
}

func TestTheManualNamesTheAnnotationsThatCount(t *testing.T) {
	var named []string
	for _, r := range rows(manual(t)) {
		if name := r.cell("annotation"); name != "" {
			named = append(named, strings.Split(name, " or ")...)
		}
	}
	if want := append(slices.Clone(registry.ServiceAnnotations), registry.WeightAnnotation, registry.ZoneAnnotation, registry.BackupAnnotation, names.Annotation, registry.RegistrarAnnotation); !slices.Equal(named, want) {
		t.Errorf("the manual names %q; want %q", named, want)
	}
}

// source parses the files of the package.
func source(t *testing.T) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]*ast.File)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// constant gives the value of a string literal, or of the one constant that names a field.
func constant(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	case *ast.SelectorExpr:
		if e.Sel.Name == "SourceRangesField" {
			return registry.SourceRangesField
		}
	}
	return ""
}

// The decoder of JSON knows a field by its name: in the tag of a struct, or where it compares keys.
func TestTheManualNamesTheFieldsThatTheDecoderOfJSONReads(t *testing.T) {
	read := make(map[string]bool)
	for _, file := range source(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "isKey" {
					if name := constant(n.Args[1]); name != "" {
						read[name] = true
					}
				}
			case *ast.Field:
				if n.Tag != nil {
					tag, _ := strconv.Unquote(n.Tag.Value)
					if m := regexp.MustCompile(`^json:"([^"/]+)"$`).FindStringSubmatch(tag); m != nil {
						read[m[1]] = true // and not an annotation, which has a slash
					}
				}
			}
			return true
		})
	}
	named := make(map[string]bool)
	for _, r := range rows(manual(t)) {
		for _, column := range []string{"flat", "nested"} {
			for _, path := range quoted(r.cell(column)) {
				for name := range strings.SplitSeq(strings.ReplaceAll(path, "[]", ""), ".") {
					named[name] = true
				}
			}
		}
	}
	if !maps.Equal(read, named) {
		t.Errorf("the decoder reads %q\nthe manual names %q", slices.Sorted(maps.Keys(read)), slices.Sorted(maps.Keys(named)))
	}
}

// fieldNumbers are the rows of the manual that give a field of protobuf its number.
type fieldNumber struct {
	section, path string
	numbers       []protowire.Number
}

func fieldNumbers(t *testing.T) (all []fieldNumber) {
	t.Helper()
	for _, r := range rows(manual(t)) {
		text := r.cell("protobuf")
		if text == "" || text == "–" {
			continue
		}
		paths := quoted(r.cell("nested") + r.cell("field"))
		if len(paths) != 1 {
			t.Fatalf("%q: want one field", r.cells)
		}
		f := fieldNumber{section: r.section, path: strings.ReplaceAll(paths[0], "[]", "")}
		for part := range strings.SplitSeq(text, ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				t.Fatalf("%q: %v", r.cells, err)
			}
			f.numbers = append(f.numbers, protowire.Number(n))
		}
		all = append(all, f)
	}
	return all
}

// Each field is written with a type that no field has: the error tells how the decoder calls the field of that number.
func TestTheManualNumbersTheFieldsOfProtobufAsTheDecoderDoes(t *testing.T) {
	named := make(map[string]bool)
	for _, f := range fieldNumbers(t) {
		named[f.path] = true
		last := len(f.numbers) - 1
		wrong := protowire.AppendFixed32(protowire.AppendTag(nil, f.numbers[last], protowire.Fixed32Type), 0)
		for _, n := range slices.Backward(f.numbers[:last]) {
			wrong = sub(n, wrong)
		}
		key, value := specKey, enveloped("v1", "Service", wrong)
		switch f.section {
		case "Endpoints":
			key, value = endpointsKey, enveloped("v1", "Endpoints", wrong)
		case "EndpointSlice":
			label := sub(1, sub(11, sub(1, []byte(labelServiceName)), sub(2, []byte("x"))))
			key, value = sliceKey, enveloped("discovery.k8s.io/v1", "EndpointSlice", joined(label, sub(4, []byte("IPv4")), wrong))
		case "The envelope of protobuf":
			value = append([]byte("k8s\x00"), wrong...)
		}
		reader := Decoder{Addresses: AtBoth, Node: registry.Node{Name: "n", Zone: "z"}} // which has to know where services and endpoints are
		if _, _, err := reader.Decode(key, value); err == nil || !strings.HasPrefix(err.Error(), "not a valid protobuf value: "+f.path+" is no ") {
			t.Errorf("%s, %s, %v: error %v", f.section, f.path, f.numbers, err)
		}
	}
	asked := 0
	for _, name := range []string{"protobuf.go", "protobuf_records.go"} {
		ast.Inspect(source(t)[name], func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Message", "Text", "TextOf", "Known", "Integer", "Bool", "MapEntry"}, f.Sel.Name) {
				return true
			}
			asked++
			path := constant(call.Args[0])
			if !named[path] && path != "" && path != "metadata" && path != "spec" && path != "status" && path != "status.loadBalancer" {
				t.Errorf("%s reads %s, which is not in the manual", name, path)
			}
			return true
		})
	}
	if asked < len(named)/2 {
		t.Errorf("the decoder asks for %d fields; the manual names %d", asked, len(named))
	}
}
