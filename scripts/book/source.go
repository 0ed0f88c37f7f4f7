package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"html/template"
	"strings"
)

// sourceSuffix is what the path of a Go file has in addition, as a page. Links to it may name a declaration: race.go#Race.Next.
const sourceSuffix = ".go.html"

// sourcePage makes the page of a Go file. Its anchors are the declarations, a method as Type.Name.
func sourcePage(name string, text []byte) (*page, error) {
	p := &page{Source: name, Path: name + ".html", Title: name, anchors: make(map[string]bool)}
	lines, err := declarations(name, text)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<h1>%s</h1>\n<pre class=\"source\"><code>", html.EscapeString(name))
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		for _, anchor := range lines[i+1] {
			p.anchors[anchor] = true
			fmt.Fprintf(&b, "<b id=\"%s\"></b>", anchor)
		}
		class := ""
		if strings.HasPrefix(strings.TrimSpace(line), "//") {
			class = " class=\"comment\""
		}
		fmt.Fprintf(&b, "<span%s>%s\n</span>", class, html.EscapeString(line))
	}
	b.WriteString("</code></pre>")
	p.Body = template.HTML(b.String()) // every line is escaped, and an anchor is an identifier of Go
	return p, nil
}

// declarations returns the names that a file declares, by the line on which each begins, with its comment.
func declarations(name string, text []byte) (map[int][]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := make(map[int][]string)
	add := func(name string, at ast.Node, doc *ast.CommentGroup) {
		pos := at.Pos()
		if doc != nil {
			pos = doc.Pos()
		}
		line := fset.Position(pos).Line
		lines[line] = append(lines[line], name)
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(receiver(d)+d.Name.Name, d, d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					doc := spec.Doc
					if len(d.Specs) == 1 {
						doc = d.Doc
					}
					add(spec.Name.Name, spec, doc)
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						add(n.Name, spec, spec.Doc)
					}
				}
			}
		}
	}
	return lines, nil
}

// receiver is the type of a method, with a dot, and nothing of a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "."
		default:
			return ""
		}
	}
}
