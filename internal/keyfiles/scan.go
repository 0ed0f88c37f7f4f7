package keyfiles

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
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
	start, err := t.open()
	defer start.close()
	if err != nil {
		return Scan{}, err
	}
	if t.known == nil {
		t.known, t.seed = make(map[string]*entry), maphash.MakeSeed()
	}
	t.scans++
	w := walk{tree: t, all: all, edits: make(map[string]*entry), data: make(map[string]fs.FileInfo), through: start.through}
	w.note(w.through)
	w.dir(start.services, filepath.Join(t.Dir, filepath.FromSlash(registry.Prefix)), strings.TrimSuffix(registry.Prefix, "/"), 0)
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
			if slices.ContainsFunc(e.through, func(dir string) bool { return w.data[dir] != nil && !os.SameFile(t.data[dir], w.data[dir]) }) {
				w.found.Swapped = append(w.found.Swapped, key)
			} else {
				w.found.Gone = append(w.found.Gone, key)
			}
		}
	}
	t.data = w.data
	slices.Sort(w.found.Gone)
	slices.Sort(w.found.Swapped)
	return w.found, nil
}

// Check reports what is wrong with the directory itself, without reading what is in it.
func (t *Tree) Check() error {
	start, err := t.open()
	start.close()
	return err
}

// A start is the directory where keys begin, and what leads to it.
type start struct {
	services *os.Root
	through  *directory // whose link ..data leads to it, as where a volume is all of Tree.Dir; nil: none does
	opened   []io.Closer
}

func (s *start) close() {
	for _, c := range s.opened {
		_ = c.Close() // nothing was written
	}
}

// add notes what is to be closed.
func (s *start) add(root *os.Root, err error) (*os.Root, error) {
	if err == nil {
		s.opened = append(s.opened, root)
	}
	return root, err
}

// open opens the directory, and the one below it where keys begin. What it returns has to be closed, also after an error.
func (t *Tree) open() (s start, err error) {
	shown := registry.Quote(t.Dir)
	info, err := os.Stat(t.Dir) // before it is opened, which would wait for the other end of a pipe
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	var root *os.Root
	if err == nil {
		root, err = s.add(os.OpenRoot(t.Dir))
	}
	if err != nil {
		return s, fmt.Errorf("directory %s: %w", shown, reason(err))
	}
	if err = s.descend(root, strings.Split(strings.Trim(registry.Prefix, "/"), "/")); err == nil {
		return s, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return s, fmt.Errorf("directory %s: registry/services: %w", shown, reason(err))
	}
	return s, fmt.Errorf("directory %s %w", shown, ErrNoRegistry)
}

// descend opens the directory that these names lead to. A link through ..data among them is held as any other one is: what a scan reads through
// it is of one version.
func (s *start) descend(root *os.Root, names []string) error {
	parent := root
	for i, name := range names {
		d := &directory{root: parent, key: "/" + strings.Join(names[:i], "/")}
		in, inner, err := d.resolve(name)
		if d.data != nil {
			s.opened = append(s.opened, d.data)
		}
		if err == nil && in == d.data {
			s.through = d.leads(nil)
			s.services, err = s.add(openDir(in, filepath.Join(inner, filepath.Join(names[i+1:]...))))
			return err
		}
		if parent, err = s.add(openDir(parent, name)); err != nil { // such as for a link that leads elsewhere below root
			s.services, err = s.add(openDir(root, filepath.Join(names...)))
			return err
		}
	}
	s.services = parent
	return nil
}
