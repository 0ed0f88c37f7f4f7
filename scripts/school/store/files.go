package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// files are records in files: DIR/registry/services/KEY.
type files struct {
	root string
}

func newFiles() (*files, error) {
	root, err := os.MkdirTemp("", "school-")
	if err != nil {
		return nil, err
	}
	f := &files{root}
	for _, kind := range []string{"specs", "endpoints"} {
		if err := os.MkdirAll(f.path(kind), 0o755); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *files) dir() string            { return filepath.Join(f.root, "records") }
func (f *files) path(key string) string { return filepath.Join(f.dir(), "registry", "services", key) }
func (f *files) Flags() []string        { return []string{"-registry_dir=" + f.dir()} }
func (f *files) Close()                 { os.RemoveAll(f.root) }

// Put replaces a file in one step: no program reads half a record.
func (f *files) Put(key, value string) error {
	next := filepath.Join(f.root, "next")
	if err := os.WriteFile(next, []byte(value), 0o644); err != nil {
		return err
	}
	return os.Rename(next, f.path(key))
}

func (f *files) Delete(key string) error {
	err := os.Remove(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f *files) PutByHand(key, value string) string {
	next := filepath.Join(f.root, "next")
	return "printf %s " + Quoted(value) + " > " + next + " && mv " + next + " " + f.path(key)
}

func (f *files) DeleteByHand(key string) string { return "rm " + f.path(key) }

// Quoted is a word for a shell.
func Quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
