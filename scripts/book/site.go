package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A page is one document.
type page struct {
	Source string // path below the root, with slashes
	Path   string // of the page, below the site
	Title  string
	Body   template.HTML

	Previous, Next *page // in the order of the book; nil at its ends

	anchors  map[string]bool
	links    []string // as the page has them
	sections []section
}

// A section is what the search finds.
type section struct {
	Page, Anchor, Title string
	Words               string // each once
}

// A part is some documents of the book.
type part struct {
	Title   string
	sources []string
	Pages   []*page
}

var linkedDocument = regexp.MustCompile(`\]\(([^)#:]+\.md)`)

// parts lists the documents below a root: those that docs/README.md links, in its order and below its headings, then the others. The index of
// a folder, its README.md, is followed by what it links in that folder.
func parts(root string) ([]part, error) {
	all := []part{{Title: "The book"}}
	seen := make(map[string]bool)
	add := func(source string) {
		if p := &all[len(all)-1]; !seen[source] {
			seen[source] = true
			p.sources = append(p.sources, source)
		}
	}
	// addLinked adds what a document links, or only what is in its folder.
	var addLinked func(of string, inFolder bool) error
	addLinked = func(of string, inFolder bool) error {
		text, err := os.ReadFile(filepath.Join(root, of))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if title, ok := strings.CutPrefix(line, "## "); ok && !inFolder {
				all = append(all, part{Title: strings.TrimSpace(title)})
			}
			for _, m := range linkedDocument.FindAllStringSubmatch(line, -1) {
				source := path.Join(path.Dir(of), m[1])
				switch {
				case inFolder && path.Dir(source) != path.Dir(of) || seen[source]:
				case path.Base(source) == "README.md" && !inFolder:
					add(source)
					if err := addLinked(source, true); err != nil {
						return err
					}
				default:
					add(source)
				}
			}
		}
		return nil
	}
	add("README.md")
	add("docs/README.md")
	if err := addLinked("docs/README.md", false); err != nil {
		return nil, err
	}
	all = append(all, part{Title: "More"})
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".md"):
			add(name)
		}
		return nil
	})
	return all, err
}

// sitePath is where the page of a document is.
func sitePath(source string) string {
	if source == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(source, ".md") + ".html"
}

//go:embed layout.html
var layoutText string

//go:embed style.css
var style []byte

//go:embed search.js
var search []byte

// build makes the site, and returns how many pages it has.
func build(root, out string) (int, error) {
	all, err := parts(root)
	if err != nil {
		return 0, err
	}
	var pages []*page
	for i := range all {
		for _, source := range all[i].sources {
			text, err := os.ReadFile(filepath.Join(root, source))
			if err != nil {
				return 0, err
			}
			p, err := render(source, text)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", source, err)
			}
			if len(pages) > 0 {
				p.Previous = pages[len(pages)-1]
				p.Previous.Next = p
			}
			pages = append(pages, p)
			all[i].Pages = append(all[i].Pages, p)
		}
	}
	files, sources, err := resolve(root, pages)
	if err != nil {
		return 0, err
	}
	if err := os.RemoveAll(out); err != nil {
		return 0, err
	}
	write := func(name string, text []byte) error {
		target := filepath.Join(out, name)
		return errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, text, 0o644))
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err == nil {
			err = write(name, text)
		}
		if err != nil {
			return 0, err
		}
	}
	index, err := searchIndex(pages)
	if err != nil {
		return 0, err
	}
	layout := template.Must(template.New("").Parse(layoutText))
	for _, p := range slices.Concat(pages, sources) {
		var text bytes.Buffer
		up := strings.Repeat("../", strings.Count(p.Path, "/"))
		if err := layout.Execute(&text, map[string]any{"Page": p, "Parts": all, "Up": up}); err != nil {
			return 0, err
		}
		if err := write(p.Path, text.Bytes()); err != nil {
			return 0, err
		}
	}
	return len(pages), errors.Join(write("style.css", style), write("search.js", append(index, search...)))
}

// searchIndex writes the sections as a script: a page that was opened as a file may load no other data.
func searchIndex(pages []*page) ([]byte, error) {
	var all []section
	for _, p := range pages {
		all = append(all, p.sections...)
	}
	text, err := json.Marshal(all)
	return fmt.Appendf(nil, "const sections = %s;\n", text), err
}

// resolve checks each link of each page, and returns the files of the repository that pages lead to, and the pages of Go files among them.
func resolve(root string, pages []*page) (files []string, sources []*page, err error) {
	byPath := make(map[string]*page)
	for _, p := range pages {
		byPath[p.Path] = p
	}
	var dead []error
	for _, p := range pages {
		for _, link := range p.links {
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			target, anchor, _ := strings.Cut(link, "#")
			to := p
			if target != "" {
				name := path.Join(path.Dir(p.Path), target)
				if to = byPath[name]; to == nil && strings.HasSuffix(name, sourceSuffix) && !strings.HasPrefix(name, "..") {
					goFile := strings.TrimSuffix(name, ".html")
					if text, err := os.ReadFile(filepath.Join(root, goFile)); err == nil {
						if to, err = sourcePage(goFile, text); err != nil {
							return nil, nil, err
						}
						byPath[name], sources = to, append(sources, to)
					}
				}
				if to == nil {
					info, err := os.Stat(filepath.Join(root, name))
					switch {
					case err != nil || info.IsDir() || strings.HasPrefix(name, ".."):
						dead = append(dead, fmt.Errorf("%s: the link to %s leads nowhere", p.Source, link))
					case !slices.Contains(files, name):
						files = append(files, name)
					}
					continue
				}
			}
			switch {
			case anchor == "" || to.anchors[anchor]:
			case strings.HasSuffix(to.Path, sourceSuffix):
				dead = append(dead, fmt.Errorf("%s: %s does not declare %s", p.Source, to.Source, anchor))
			default:
				dead = append(dead, fmt.Errorf("%s: %s has no heading for the link to %s", p.Source, to.Source, link))
			}
		}
	}
	return files, sources, errors.Join(dead...)
}
