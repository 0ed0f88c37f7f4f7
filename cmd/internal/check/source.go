package check

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubeproxy/internal/keyfiles"
	"kubeproxy/registry"
)

// A Registry is all the keys below [registry.Prefix], from wherever.
type Registry struct {
	Source   string // where it was read, fit to be shown
	Revision int64  // of etcd, else 0
	IsEtcd2  bool   // whose source knows no keys that elect
	Records  []Record

	Elsewhere []string // names in a directory that are not on the way to registry/services: nothing in them is read
}

// A Record is one key with its value, or with the reason why there is none.
type Record struct {
	Key     string
	Value   []byte
	Created int64 // the create revision; 0 where it is not known
	Err     error

	Modified int64 // the mod revision; 0: Created

	LeftOut bool // by the name of its file; it has no value
}

// FromDirectory reads a registry of files, as the source behind -registry_dir does: package keyfiles has the rules. A file that
// cannot be read, or that is no regular file, becomes a record that says so.
func FromDirectory(dir string) (Registry, error) {
	const attempts = 10
	for range attempts {
		tree := keyfiles.Tree{Dir: dir}
		scan, err := tree.Scan(true)
		if err != nil {
			if meant := above(dir); meant != "" {
				err = fmt.Errorf("%w (did you mean %s?)", err, registry.Quote(meant))
			}
			return Registry{}, err
		}
		if scan.Moving {
			continue
		}
		r := Registry{Source: "directory " + registry.Quote(dir), Elsewhere: elsewhere(dir)}
		for _, f := range slices.Concat(scan.Changed, scan.Unread) {
			r.Records = append(r.Records, Record{Key: f.Key, Value: f.Value, Err: f.Err})
		}
		for _, key := range scan.LeftOut {
			r.Records = append(r.Records, Record{Key: key, LeftOut: true})
		}
		return r, nil
	}
	return Registry{}, fmt.Errorf("directory %s: files are being written all the time", registry.Quote(dir))
}

// above returns the directory in whose registry a path lies; "" if there is none. Who wants to know about one file gives its path.
func above(path string) string {
	top, _, _ := strings.Cut(strings.Trim(registry.Prefix, "/"), "/")
	for at := filepath.Clean(path); at != filepath.Dir(at); at = filepath.Dir(at) {
		if filepath.Base(at) != top {
			continue
		}
		dir := filepath.Dir(at)
		if info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(registry.Prefix))); err == nil && info.IsDir() {
			return dir
		}
	}
	return ""
}

// elsewhere lists what lies in a directory beside registry/services, hidden names left out: records that were put there have no effect.
// What cannot be listed is left out, too.
func elsewhere(dir string) (all []string) {
	way := strings.Split(strings.Trim(registry.Prefix, "/"), "/")
	for i, next := range way {
		within := filepath.Join(way[:i]...)
		names, err := readNames(filepath.Join(dir, within))
		if err != nil {
			continue
		}
		for _, name := range names {
			if name != next && !keyfiles.LeftOut(name) {
				all = append(all, filepath.Join(within, name))
			}
		}
	}
	return all
}

// readNames lists the first names in a directory, sorted.
func readNames(dir string) ([]string, error) {
	const most = 1000
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		err = nil // it is empty
	}
	slices.Sort(names)
	return names, err
}
