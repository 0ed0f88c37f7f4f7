// Package keyfiles reads a registry of files. The path of a file below a directory is its key, and its content is the value: what
// lies in DIR/registry/services/specs/web is the value of /registry/services/specs/web. The rest of DIR is not looked at.
//
// A [Tree] is scanned again and again, and each scan costs little more than looking at every file's size and time. What others do
// to the directory meanwhile harms nothing:
//
//   - Only regular files are opened, and never in a way that waits. Pipes, sockets and devices are files with an error.
//   - Nothing outside DIR is ever read. Symbolic links are not followed, but for those that Kubernetes puts into volumes: a link
//     whose target begins with "..data/", where ..data is itself a link beside it. All that one scan reads through such a link
//     is of one version of it, so to swap ..data is to change many files at once. A scan that loses files of its version to the swap
//     says nothing but [Scan].Torn. A directory whose links need a ..data that leads nowhere cannot be read.
//   - Hidden, temporary and backup files are left out: see [LeftOut].
//   - A file that changes while it is read counts as unchanged, and [Scan].Moving asks for another scan.
//   - [MaxFiles], [MaxBytes] and the length of a record bound what is read.
package keyfiles

import (
	"cmp"
	"errors"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The limits of a directory. A scan that meets more fails with [ErrTooLarge].
const (
	MaxFiles = 100_000   // files and directories, those left out included
	MaxBytes = 256 << 20 // in all values together
	maxDepth = 8         // of directories below registry/services; no key has more than two
)

// ErrTooLarge is the error of a directory that is beyond a limit.
var ErrTooLarge = errors.New("is too large")

// ErrNoRegistry is the error of a directory without a registry in it.
var ErrNoRegistry = errors.New("has no directory registry/services: the path of a file below it is its key, as in registry/services/specs/NAME")

// A Tree is a directory of keys and what is known of it. The zero value is not usable: set Dir. It belongs to one goroutine.
type Tree struct {
	Dir string

	seed  maphash.Seed
	known map[string]*entry      // by key
	data  map[string]fs.FileInfo // what each link ..data led to, by the key of the directory that it lies in
	scans uint64                 // how many there were

	// For tests only, also those of packages that use a Tree: they have fewer files, and something happen while one is read.
	files   int
	Reading func()
}

func (t *Tree) limit() int { return cmp.Or(t.files, MaxFiles) }

// An entry is one file as it was read last.
type entry struct {
	info fs.FileInfo // from before it was read; nil: it has to be read again
	read time.Time
	sum  uint64 // of the value, or of the error
	scan uint64 // the last scan that met it

	through []string // the keys of the directories through whose links ..data it was read, the outermost first
}

// A File is a key and its value.
type File struct {
	Key   string
	Value []byte
	Err   error // why there is no value
}

// A Scan says how a directory differs from the scan before.
type Scan struct {
	Changed []File   // new files, and those with another content; in the order of their keys
	Gone    []string // keys whose files are not there any more; an editor that replaces one may be about to write it anew
	Swapped []string // keys that are not there any more, and whose link ..data leads to another directory than before
	Moving  bool     // some files changed while they were read: another scan will find more
	Writing []string // their keys; they are there, whatever is in them
	Dirs    []string // each directory that was read, by its path

	// Torn says that a link ..data was swapped, and that files of the version before may have been removed while they were read. Such a scan
	// is Moving and has its Dirs. It says nothing of any key, and the next one begins where it did.
	Torn bool

	// LeftOut are the keys that files and directories would have but for their names, if all was asked for; see [LeftOut]. Names that
	// begin with two dots are not among them: they are parts of volumes.
	LeftOut []string

	// Unread are directories that could not be read, with a slash at the end of the key. Of the keys below them nothing is known,
	// so a scan with such directories says nothing of what is gone, and the next one begins where this one did.
	Unread []File
}

// openDir opens a directory, and nothing else that may stand in its place by now: a pipe would have us wait.
func openDir(root *os.Root, name string) (*os.Root, error) {
	return root.OpenRoot(name + string(filepath.Separator) + ".")
}

// LeftOut reports whether a name is that of a hidden file, of one that is about to be renamed, or of a copy that editors and package
// managers leave beside a file. Such files and directories are no records.
func LeftOut(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || slices.ContainsFunc(leftOutEndings, func(ending string) bool { return strings.HasSuffix(name, ending) })
}

var leftOutEndings = []string{"~", ".tmp", ".bak", ".old", ".orig", ".rej", ".swp"}

// reason gives an error without the path, which is shown beside it and may hold anything.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
