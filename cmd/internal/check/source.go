package check

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"kubeproxy/registry"
)

// A Registry is all the keys below [registry.Prefix], from wherever.
type Registry struct {
	Source   string // where it was read, fit to be shown
	Revision int64  // of etcd, else 0
	Records  []Record
}

// A Record is one key with its value, or with the reason why there is none.
type Record struct {
	Key     string
	Value   []byte
	Created int64 // the create revision; 0 where nobody knows
	Err     error

	Modified int64 // the mod revision; 0: Created
}

// FromDirectory reads a registry of files. The path of a file below dir is its key: what lies in
// dir/registry/services/specs/web is the value of /registry/services/specs/web. The rest of dir is
// not looked at.
//
// Only regular files are values. What else lies there is not opened, for a pipe would have us wait
// for ever and a link may lead anywhere; like a file that cannot be read it becomes a record that says so.
func FromDirectory(dir string) (Registry, error) {
	shown := registry.Quote(dir)
	top := filepath.Join(dir, filepath.FromSlash(registry.Prefix))
	info, err := os.Lstat(top)
	there := err == nil && info.IsDir()
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(dir) // which of the two is it that does not exist?
	}
	if err != nil {
		return Registry{}, fmt.Errorf("directory %s: %w", shown, reason(err))
	}
	if !there {
		return Registry{}, fmt.Errorf("directory %s has no directory registry/services: the path of a file below it is its key, as in registry/services/specs/NAME", shown)
	}
	r := Registry{Source: "directory " + shown}
	err = filepath.WalkDir(top, func(at string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return nil
		}
		below, relErr := filepath.Rel(top, at)
		if relErr != nil {
			return relErr
		}
		record := Record{Key: path.Join(registry.Prefix, filepath.ToSlash(below))}
		if err == nil {
			record.Value, err = readValue(at, d)
		}
		if err != nil {
			record.Err = reason(err)
			if d.IsDir() {
				record.Key += "/" // nothing can be said about the keys in it
			}
		}
		r.Records = append(r.Records, record)
		return nil
	})
	return r, err
}

// readValue reads a file that may be a value.
func readValue(at string, d fs.DirEntry) ([]byte, error) {
	if !d.Type().IsRegular() {
		return nil, errors.New(kindOf(d.Type()) + " where a file is wanted")
	}
	file, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe since
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New(kindOf(info.Mode()) + " where a file is wanted")
	case info.Size() > registry.MaxRecordBytes:
		return nil, fmt.Errorf("file of %d bytes is longer than the limit of %d", info.Size(), registry.MaxRecordBytes)
	}
	return io.ReadAll(io.LimitReader(file, registry.MaxRecordBytes+1)) // it may grow meanwhile
}

// kindOf says what something is that is no regular file.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode.IsDir():
		return "a directory"
	}
	return "something else"
}

// reason gives an error without the path, which is shown beside it and may hold anything.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
