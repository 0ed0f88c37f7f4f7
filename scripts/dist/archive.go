package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// archive writes the tar.gz: the program, its man page and completions, and the documents, in a directory of their own.
func (r *release) archive(p *program) error {
	papers, err := r.papers()
	if err != nil {
		return err
	}
	files := []file{
		{path: packageName, mode: 0o755, content: p.content},
		p.notices(""),
		{path: "completion/_" + packageName, mode: 0o644, content: r.manual.zsh},
		{path: "completion/" + packageName + ".bash", mode: 0o644, content: r.manual.bash},
		{path: "completion/" + packageName + ".fish", mode: 0o644, content: r.manual.fish},
		{path: "man/" + packageName + ".8", mode: 0o644, content: r.manual.page},
	}
	return r.tarball(r.called(p.target), append(files, papers...))
}

// school writes the tar.gz of the school: one program, which has its texts in it. etcd has releases of its own, and is not in it.
func (r *release) school(p *program) error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	return r.tarball(r.called(p.target), []file{{path: "LICENSE", mode: 0o644, content: license}, p.notices(""), {path: p.name, mode: 0o755, content: p.content}})
}

// tarball writes a tar.gz of files below a directory of its name.
func (r *release) tarball(name string, files []file) error {
	text, err := tarOf(name, files, r.when)
	if err != nil {
		return err
	}
	if text, err = compressed(text); err != nil {
		return err
	}
	return os.WriteFile(r.name("%s.tar.gz", name), text, 0o644)
}

// tarOf returns a tar of files below a directory. A path that ends with a slash is a directory.
func tarOf(dir string, files []file, when time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(dir, f.path), Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: when, Uid: f.owner, Gid: f.owner}
		if strings.HasSuffix(f.path, "/") {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
