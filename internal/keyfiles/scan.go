package keyfiles

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"kubeproxy/registry"
)

// Scan reads what has changed since the last scan that was complete: everything, the first time and if all is set. After an
// error nothing is known that was not known before. An error names the directory.
func (t *Tree) Scan(all bool) (Scan, error) {
	root, services, err := t.open()
	if err != nil {
		return Scan{}, err
	}
	defer root.Close()
	defer services.Close()
	if t.known == nil {
		t.known, t.seed = make(map[string]*entry), maphash.MakeSeed()
	}
	t.scans++
	w := walk{tree: t, all: all, edits: make(map[string]*entry)}
	w.dir(services, filepath.Join(t.Dir, filepath.FromSlash(registry.Prefix)), strings.TrimSuffix(registry.Prefix, "/"), 0)
	if w.limit != "" {
		return Scan{}, fmt.Errorf("directory %s %w: %s", registry.Quote(t.Dir), ErrTooLarge, w.limit)
	}
	if w.found.Torn {
		return Scan{Moving: true, Torn: true, Dirs: w.found.Dirs}, nil
	}
	slices.Sort(w.found.LeftOut)
	slices.SortFunc(w.found.Changed, func(a, b File) int { return strings.Compare(a.Key, b.Key) })
	if len(w.found.Unread) > 0 {
		return w.found, nil
	}
	maps.Copy(t.known, w.edits)
	for key, e := range t.known {
		if e.scan != t.scans {
			delete(t.known, key)
			if e.linked {
				w.found.Swapped = append(w.found.Swapped, key)
			} else {
				w.found.Gone = append(w.found.Gone, key)
			}
		}
	}
	slices.Sort(w.found.Gone)
	slices.Sort(w.found.Swapped)
	return w.found, nil
}

// Check reports what is wrong with the directory itself, without reading what is in it.
func (t *Tree) Check() error {
	root, services, err := t.open()
	if err != nil {
		return err
	}
	return errors.Join(services.Close(), root.Close())
}

// open opens the directory, and the one below it where keys begin.
func (t *Tree) open() (root, services *os.Root, err error) {
	shown := registry.Quote(t.Dir)
	info, err := os.Stat(t.Dir) // before it is opened, which would wait for the other end of a pipe
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		root, err = os.OpenRoot(t.Dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("directory %s: %w", shown, reason(err))
	}
	services, err = openDir(root, filepath.FromSlash(strings.Trim(registry.Prefix, "/")))
	if err == nil {
		return root, services, nil
	}
	root.Close()
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("directory %s: registry/services: %w", shown, reason(err))
	}
	return nil, nil, fmt.Errorf("directory %s %w", shown, ErrNoRegistry)
}
