package main

import (
	"bytes"
	"html/template"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// markdown reads documents as GitHub does, as far as they use it. HTML in a document is left out.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// headingIDs gives headings the anchors that GitHub gives them.
type headingIDs map[string]bool

var noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// Generate implements [parser.IDs].
func (ids headingIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	base := strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(string(value))), ""), " ", "-")
	id := base
	for n := 1; ids[id]; n++ {
		id = base + "-" + string(rune('0'+n))
	}
	ids[id] = true
	return []byte(id)
}

// Put implements [parser.IDs].
func (ids headingIDs) Put(value []byte) { ids[string(value)] = true }

// render makes the page of a document. Links to documents become links to their pages.
func render(source string, content []byte) (*page, error) {
	p := &page{Source: source, Path: sitePath(source), anchors: make(map[string]bool)}
	root := markdown.Parser().Parse(text.NewReader(content), parser.WithContext(parser.NewContext(parser.WithIDs(headingIDs(p.anchors)))))
	err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(pageLink(source, string(n.Destination)))
			p.links = append(p.links, string(n.Destination))
		case *ast.Image:
			p.links = append(p.links, string(n.Destination))
		case *ast.Heading:
			title := plain(n, content)
			if p.Title == "" {
				p.Title = title
			}
			id, _ := n.AttributeString("id")
			p.sections = append(p.sections, section{Page: p.Path, Anchor: string(id.([]byte)), Title: title})
		case *ast.Text, *ast.CodeBlock, *ast.FencedCodeBlock, *ast.String:
			if len(p.sections) > 0 {
				p.sections[len(p.sections)-1].Words += " " + plain(n, content)
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	for i := range p.sections {
		p.sections[i].Words = words(p.sections[i].Words)
	}
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, content, root); err != nil {
		return nil, err
	}
	p.Body = template.HTML(body.String()) // goldmark escapes the text, and leaves out HTML
	return p, nil
}

// pageLink turns a link to a document, or to a Go file, into one to its page.
func pageLink(source, link string) string {
	target, anchor, hasAnchor := strings.Cut(link, "#")
	switch {
	case strings.Contains(link, "://"):
		return link
	case strings.HasSuffix(target, ".go"):
		target += ".html"
	case !strings.HasSuffix(target, ".md"):
		return link
	case path.Join(path.Dir(source), target) == "README.md":
		target = path.Join(path.Dir(target), "index.html")
	default:
		target = strings.TrimSuffix(target, ".md") + ".html"
	}
	if hasAnchor {
		target += "#" + anchor
	}
	return target
}

// plain is the text of a node.
func plain(n ast.Node, content []byte) string {
	var b strings.Builder
	if t, ok := n.(*ast.Text); ok {
		b.Write(t.Segment.Value(content))
	} else if n.Type() == ast.TypeBlock && n.Lines() != nil && !n.HasChildren() {
		b.Write(n.Lines().Value(content))
	}
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		b.WriteString(plain(c, content))
	}
	return b.String()
}

var aWord = regexp.MustCompile(`[\p{L}\p{N}_./-]{3,}`)

// words lists the words of a text, each once, in lower case.
func words(text string) string {
	all := aWord.FindAllString(strings.ToLower(text), -1)
	for i, w := range all {
		all[i] = strings.Trim(w, "./-")
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}
