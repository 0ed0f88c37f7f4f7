package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
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
func (r *release) installed(program []byte, doc string) ([]file, error) {
	unit, err := r.unit(doc)
	if err != nil {
		return nil, err
	}
	rotation, err := os.ReadFile(filepath.Join(r.root, "docs", "kube-proxy.logrotate"))
	if err != nil {
		return nil, err
	}
	flags, err := scripts.ReadFile("package/kube-proxy.env")
	if err != nil {
		return nil, err
	}
	page, err := compressed(r.manual.page)
	if err != nil {
		return nil, err
	}
	files := []file{
		{path: "/etc/kube-proxy/kube-proxy.env", mode: 0o644, content: flags, config: true},
		{path: "/etc/logrotate.d/kube-proxy", mode: 0o644, content: rotation, config: true},
		{path: "/usr/bin/kube-proxy", mode: 0o755, content: program},
		{path: "/usr/lib/systemd/system/kube-proxy.service", mode: 0o644, content: unit},
		{path: "/usr/share/bash-completion/completions/kube-proxy", mode: 0o644, content: r.manual.bash},
		{path: "/usr/share/man/man8/kube-proxy.8.gz", mode: 0o644, content: page},
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

// unit returns the unit of docs with the paths of a package. Its flags are in a file of the administrator's.
func (r *release) unit(doc string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "docs", "kube-proxy.service"))
	if err != nil {
		return nil, err
	}
	for _, change := range [][2]string{
		{"# Edit ExecStart. Services", "# Flags are in /etc/kube-proxy/kube-proxy.env. Services"},
		{"/usr/local/share/doc/kube-proxy/operating.md", path.Join(doc, "docs/operating.md")},
		{"ExecStart=/usr/local/bin/kube-proxy -etcd_servers=http://127.0.0.1:2379 -allowed_ports=1024-65535 ",
			"EnvironmentFile=/etc/kube-proxy/kube-proxy.env\nExecStart=/usr/bin/kube-proxy "},
		{"-takeover=/run/kube-proxy/takeover.sock\n", "-takeover=/run/kube-proxy/takeover.sock $KUBE_PROXY_FLAGS\n"},
	} {
		if bytes.Count(text, []byte(change[0])) != 1 {
			return nil, fmt.Errorf("docs/kube-proxy.service does not have %q once", change[0])
		}
		text = bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
	}
	return text, nil
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
