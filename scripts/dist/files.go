package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A file of a package or an archive.
type file struct {
	path    string
	mode    fs.FileMode
	content []byte
	config  bool // its administrator's: an upgrade keeps it
	owner   int  // in an image
}

// papers returns the documents that go everywhere, sorted, with paths as in the tree, so that the links between them hold.
func (r *release) papers() ([]file, error) {
	var papers []file
	for _, name := range []string{"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "docs"} {
		err := filepath.WalkDir(filepath.Join(r.root, name), func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(at, ".go") {
				return err
			}
			rel, err := filepath.Rel(r.root, at)
			if err != nil {
				return err
			}
			content, err := os.ReadFile(at)
			papers = append(papers, file{path: filepath.ToSlash(rel), mode: 0o644, content: content})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(papers, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return papers, nil
}

// installed returns what deb and rpm install alike. Documents go below doc.
func (r *release) installed(p *program, doc string) ([]file, error) {
	unit, settings, err := r.unit(doc)
	if err != nil {
		return nil, err
	}
	rotation, err := os.ReadFile(filepath.Join(r.root, "docs", packageName+".logrotate"))
	if err != nil {
		return nil, err
	}
	page, err := compressed(r.manual.page)
	if err != nil {
		return nil, err
	}
	files := []file{
		{path: settingsPath, mode: 0o644, content: settings, config: true},
		{path: "/etc/logrotate.d/" + packageName, mode: 0o644, content: rotation, config: true},
		{path: "/usr/bin/" + packageName, mode: 0o755, content: p.content},
		{path: "/usr/lib/systemd/system/" + packageName + ".service", mode: 0o644, content: unit},
		{path: "/usr/share/bash-completion/completions/" + packageName, mode: 0o644, content: r.manual.bash},
		p.notices(doc + "/"),
		{path: "/usr/share/fish/vendor_completions.d/" + packageName + ".fish", mode: 0o644, content: r.manual.fish},
		{path: "/usr/share/man/man8/" + packageName + ".8.gz", mode: 0o644, content: page},
	}
	papers, err := r.papers()
	for _, p := range papers {
		if p.path != "LICENSE" { // each kind of package has its own place for it
			p.path = path.Join(doc, p.path)
			files = append(files, p)
		}
	}
	return files, err
}

// settingsPath is where the unit of a package has its flags from.
const settingsPath = "/etc/" + packageName + "/config.yaml"

var execStart = regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/kube-proxy-classic (.*)$`)

// unit returns the unit of docs with the paths of a package, and the file of its flags, which is the administrator's.
func (r *release) unit(doc string) (unit, settings []byte, err error) {
	text, err := os.ReadFile(filepath.Join(r.root, "docs", packageName+".service"))
	if err != nil {
		return nil, nil, err
	}
	flags := execStart.FindSubmatch(text)
	if flags == nil {
		return nil, nil, errors.New("docs/kube-proxy-classic.service has no such line as " + execStart.String())
	}
	if settings, err = scripts.ReadFile("package/config.yaml"); err != nil {
		return nil, nil, err
	}
	for _, flag := range strings.Fields(string(flags[1])) { // each has its place, beside what is said of it
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "-"), "=")
		place := []byte("\n#" + name + ":\n")
		if bytes.Count(settings, place) != 1 {
			return nil, nil, fmt.Errorf("package/config.yaml does not have the line %q once", "#"+name+":")
		}
		settings = bytes.Replace(settings, place, fmt.Appendf(nil, "\n%s: %q\n", name, value), 1)
	}
	if empty := regexp.MustCompile(`(?m)^#\w+:$`).Find(settings); empty != nil {
		return nil, nil, fmt.Errorf("docs/kube-proxy-classic.service has no flag for the line %q of package/config.yaml", empty)
	}
	for _, change := range [][2]string{
		{"Edit ExecStart.", "Flags are in " + settingsPath + "."},
		{"/usr/local/share/doc/" + packageName + "/operating.md", path.Join(doc, "docs/operating.md")},
		{string(flags[0]), "ExecStart=/usr/bin/" + packageName + " -config=" + settingsPath},
	} {
		if bytes.Count(text, []byte(change[0])) != 1 {
			return nil, nil, fmt.Errorf("docs/kube-proxy-classic.service does not have %q once", change[0])
		}
		text = bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
	}
	return text, settings, nil
}

// compressed returns gzip's form of a content, without a name and a time.
func compressed(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w.ModTime = time.Time{}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}
