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

	anchors  map[string]bool
	links    []string // as the page has them
	sections []section
}

// A section is what the search finds.
type section struct {
	Page, Anchor, Title string
	Words               string // each once
}

// documents lists the documents below a root: those that docs/README.md links, in its order, then the others.
func documents(root string) (all []string, err error) {
	index, err := os.ReadFile(filepath.Join(root, "docs/README.md"))
	if err != nil {
		return nil, err
	}
	all = []string{"README.md", "docs/README.md"}
	add := func(source string) {
		if !slices.Contains(all, source) {
			all = append(all, source)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+\.md)`).FindAllStringSubmatch(string(index), -1) {
		add(path.Join("docs", m[1]))
	}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
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
	sources, err := documents(root)
	if err != nil {
		return 0, err
	}
	var pages []*page
	for _, source := range sources {
		text, err := os.ReadFile(filepath.Join(root, source))
		if err != nil {
			return 0, err
		}
		p, err := render(source, text)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", source, err)
		}
		pages = append(pages, p)
	}
	files, err := resolve(root, pages)
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
	for _, p := range pages {
		var text bytes.Buffer
		up := strings.Repeat("../", strings.Count(p.Path, "/"))
		if err := layout.Execute(&text, map[string]any{"Page": p, "All": pages, "Up": up}); err != nil {
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

// resolve checks each link of each page, and returns the files of the repository that pages lead to.
func resolve(root string, pages []*page) (files []string, err error) {
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
				if to = byPath[name]; to == nil {
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
			if anchor != "" && !to.anchors[anchor] {
				dead = append(dead, fmt.Errorf("%s: %s has no heading for the link to %s", p.Source, to.Source, link))
			}
		}
	}
	return files, errors.Join(dead...)
}
