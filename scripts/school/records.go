package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// A records is where the program reads its records from. A key is the end of what stands below /registry/services/, such as specs/web.
type records interface {
	flags() []string // what the program is told
	put(key, value string) error
	delete(key string) error // of a key that is not there: nothing
	putByHand(key, value string) string
	deleteByHand(key string) string
	close()
}

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
func (f *files) flags() []string        { return []string{"-registry_dir=" + f.dir()} }
func (f *files) close()                 { os.RemoveAll(f.root) }

// put replaces a file in one step: no program reads half a record.
func (f *files) put(key, value string) error {
	next := filepath.Join(f.root, "next")
	if err := os.WriteFile(next, []byte(value), 0o644); err != nil {
		return err
	}
	return os.Rename(next, f.path(key))
}

func (f *files) delete(key string) error {
	err := os.Remove(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f *files) putByHand(key, value string) string {
	next := filepath.Join(f.root, "next")
	return "printf %s " + quoted(value) + " > " + next + " && mv " + next + " " + f.path(key)
}

func (f *files) deleteByHand(key string) string { return "rm " + f.path(key) }

// newRecords returns files, or an etcd whose program path finds.
func newRecords(overEtcd bool, path func() (string, error)) (records, error) {
	if !overEtcd {
		return newFiles()
	}
	program, err := path()
	if err != nil {
		return nil, err
	}
	return newEtcd(program)
}
