package keyfiles

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"kubeproxy/registry"
)

// A walk is one scan of a tree on its way.
type walk struct {
	tree  *Tree
	all   bool                   // read every file
	edits map[string]*entry      // of files that were read
	data  map[string]fs.FileInfo // as in Tree
	found Scan
	files int   // and directories
	bytes int64 // of values
	limit string

	through *directory // whose link ..data leads to what is read now; nil: none does
}

// batch is how many names of a directory are read at a time.
const batch = 1024

// dir reads one directory: where it is, and the key that it stands for.
func (w *walk) dir(root *os.Root, path, key string, depth int) {
	names, err := root.OpenFile(".", os.O_RDONLY, 0)
	if err != nil {
		w.unread(key, reason(err))
		return
	}
	defer names.Close()
	w.found.Dirs = append(w.found.Dirs, path)
	d := directory{root: root, key: key}
	defer d.close()
	for w.limit == "" {
		entries, err := names.Readdirnames(batch) // ReadDir looks at each file, too, which entry does again
		for _, name := range entries {
			if w.files++; w.files > w.tree.limit() {
				w.limit = fmt.Sprintf("it has more than %d files", w.tree.limit())
				return
			}
			switch {
			case !LeftOut(name):
				w.entry(&d, name, filepath.Join(path, name), key+"/"+name, depth)
			case w.all && !strings.HasPrefix(name, ".."):
				w.found.LeftOut = append(w.found.LeftOut, key+"/"+name)
			}
		}
		if err == io.EOF {
			w.missed() // the system leaves out names that were removed meanwhile, and says nothing
			if d.nowhere {
				w.unread(key, errors.New("its link "+DataLink+" leads nowhere"))
			}
			if w.tree.data[key] != nil {
				_ = d.open() // a swap may leave no link through it. After an error it counts as not swapped
			}
			w.note(&d)
			return
		}
		if err != nil {
			w.unread(key, reason(err))
			return
		}
	}
}

// A directory is an open one, and what its link ..data led to when that was first used.
type directory struct {
	root, data *os.Root
	key        string
	chain      []string // of keys: its own, behind those of the directories through whose ..data it was reached
	nowhere    bool     // ..data led nowhere when a link through it was met
}

// leads returns d as the directory through whose ..data something is read. It was itself reached through that of outer, if that is not nil.
func (d *directory) leads(outer *directory) *directory {
	if d.chain == nil && outer != nil {
		d.chain = slices.Clone(outer.chain)
	}
	if !slices.Contains(d.chain, d.key) {
		d.chain = append(d.chain, d.key)
	}
	return d
}

// open opens what the link ..data leads to, the first time. Whatever happens to the link, that is read until close.
func (d *directory) open() (err error) {
	if d.data == nil {
		d.data, err = openDir(d.root, DataLink)
	}
	return err
}

func (d *directory) close() {
	if d.data != nil {
		d.data.Close()
	}
}

// DataLink is the name of the link through which others are followed.
const DataLink = "..data"

// resolve returns where the link of a name really leads. Only one through ..data is followed; of another one, the link itself is what
// there is.
func (d *directory) resolve(name string) (*os.Root, string, error) {
	target, err := d.root.Readlink(name)
	if err != nil {
		return nil, "", err
	}
	inner, ok := strings.CutPrefix(filepath.ToSlash(target), DataLink+"/")
	if !ok {
		return d.root, name, nil
	}
	if err = d.open(); err != nil {
		d.nowhere = d.nowhere || errors.Is(err, fs.ErrNotExist)
		return nil, "", err
	}
	return d.data, filepath.FromSlash(inner), nil
}

// swapped reports whether the link ..data leads elsewhere, or nowhere, since it was used.
func (d *directory) swapped() bool {
	now, err := d.root.Stat(DataLink + string(filepath.Separator) + ".")
	if d.data == nil { // it led nowhere
		return err == nil
	}
	held, gone := d.data.Stat(".")
	return err != nil || gone != nil || !os.SameFile(held, now)
}

// note records what the link ..data of a directory led to, for the next scan to see whether it was swapped.
func (w *walk) note(d *directory) {
	if d == nil || d.data == nil {
		return
	}
	if info, err := d.data.Stat("."); err == nil { // otherwise it counts as not swapped
		w.data[d.key] = info
	}
}

// missed handles that something is not there. If a link ..data on the way to it was swapped meanwhile, that may be the only reason: kubelet
// then removes what the link led to, which is what this scan reads.
func (w *walk) missed() {
	if w.through != nil && w.through.swapped() {
		w.found.Torn = true
	}
}

// entry reads what one name of a directory stands for. What has gone by now is not there.
func (w *walk) entry(d *directory, name, path, key string, depth int) {
	root := d.root
	info, err := root.Lstat(name)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if root, name, err = d.resolve(name); err == nil {
			info, err = root.Lstat(name)
		}
		if root != d.root {
			defer func(before *directory) { w.through = before }(w.through)
			w.through = d.leads(w.through)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.missed()
	case isRoot(key) && err == nil && info.Mode().IsRegular():
		w.found.Unread = append(w.found.Unread, File{Key: key, Err: errors.New("a file where a directory is wanted")})
	case err != nil:
		w.failed(key, reason(err))
	case info.IsDir() && depth == maxDepth:
		w.failed(key, fmt.Errorf("directories are nested more than %d deep", maxDepth))
	case info.IsDir():
		sub, err := openDir(root, name)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				w.missed()
			} else {
				w.unread(key, reason(err))
			}
			return
		}
		defer sub.Close()
		w.dir(sub, path, key, depth+1)
	case !info.Mode().IsRegular():
		w.failed(key, errNotRegular(info.Mode()))
	default:
		w.file(root, name, key, info)
	}
}

// settled is how long a file must have been left alone for its size and time to tell whether it was written since. File systems
// count time in steps, of up to two seconds in old ones.
const settled = 2 * time.Second

// file reads a regular file, unless it is the one that was read before.
func (w *walk) file(root *os.Root, name, key string, info fs.FileInfo) {
	if info.Size() <= registry.MaxRecordBytes {
		if w.bytes += info.Size(); w.bytes > MaxBytes {
			w.limit = fmt.Sprintf("its files have more than %d bytes", MaxBytes)
			return
		}
	}
	known := w.tree.known[key]
	if known != nil && !w.all && known.same(info) {
		known.scan = w.tree.scans
		return
	}
	at := time.Now()
	value, err := read(root, name, w.tree.Reading)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.missed()
	case errors.Is(err, errMoving):
		w.found.Moving, w.found.Writing = true, append(w.found.Writing, key)
		if known != nil {
			known.scan = w.tree.scans
		}
	case err != nil:
		w.failed(key, reason(err))
	default:
		w.add(File{Key: key, Value: value}, maphash.Bytes(w.tree.seed, value), &entry{info: info, read: at})
	}
}

// same reports whether a file is, by its looks, the one that was read.
func (e *entry) same(info fs.FileInfo) bool {
	return e.info != nil && os.SameFile(e.info, info) && e.info.Size() == info.Size() && e.info.Mode() == info.Mode() &&
		e.info.ModTime().Equal(info.ModTime()) && e.read.Sub(info.ModTime()) > settled
}

// isRoot reports whether all keys of a kind should be below this one.
func isRoot(key string) bool {
	return slices.Contains([]string{registry.SpecsPrefix, registry.EndpointsPrefix, registry.EndpointSlicesPrefix}, key+"/")
}

// failed adds a key without a value. It is looked at again in each scan.
func (w *walk) failed(key string, err error) {
	if isRoot(key) {
		w.found.Unread = append(w.found.Unread, File{Key: key, Err: err})
		return
	}
	w.add(File{Key: key, Err: err}, ^maphash.String(w.tree.seed, err.Error()), &entry{})
}

// add adds a file, if it is not as it was.
func (w *walk) add(f File, sum uint64, e *entry) {
	e.sum, e.scan = sum, w.tree.scans
	if w.through != nil {
		e.through = w.through.chain
	}
	w.edits[f.Key] = e
	if known := w.tree.known[f.Key]; known == nil || known.sum != sum {
		w.found.Changed = append(w.found.Changed, f)
	}
}

func (w *walk) unread(key string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		w.missed()
	}
	w.found.Unread = append(w.found.Unread, File{Key: key + "/", Err: err})
}

var errMoving = errors.New("it changed while it was read")

// read reads a file that may be a value.
func read(root *os.Root, name string, reading func()) ([]byte, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe since
	if err != nil {
		return nil, err
	}
	defer file.Close()
	before, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !before.Mode().IsRegular():
		return nil, errNotRegular(before.Mode())
	case before.Size() > registry.MaxRecordBytes:
		return nil, fmt.Errorf("file of %d bytes is longer than the limit of %d", before.Size(), registry.MaxRecordBytes)
	}
	value := make([]byte, before.Size()+1)
	n, err := io.ReadFull(file, value)
	if err == nil || n != len(value)-1 {
		return nil, errMoving // longer or shorter than a moment ago
	}
	if err != io.ErrUnexpectedEOF && err != io.EOF {
		return nil, err
	}
	if reading != nil {
		reading()
	}
	after, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, errMoving
	}
	return value[:n], nil
}

// errNotRegular says what something is that is no regular file.
func errNotRegular(mode fs.FileMode) error {
	what := "something else"
	switch {
	case mode&fs.ModeSymlink != 0:
		what = "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	case mode.IsDir():
		what = "a directory"
	}
	return errors.New(what + " where a file is wanted")
}
