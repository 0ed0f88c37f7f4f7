package takeover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kubeproxy/internal/privatedir"
)

// freshSuffix is added to a path while its socket is being made.
const freshSuffix = ".new"

// maxPath is how long the path of a UNIX socket may be: sun_path of Linux with its zero, and our suffix.
const maxPath = 108 - 1 - len(freshSuffix)

// errNotHere is why there is no take-over on another system.
var errNotHere = errors.New("there is no take-over on this system, only on Linux")

// ErrNobody is that no process waits for a successor.
var ErrNobody = errors.New("no process waits for a successor")

// CheckPath returns an error if this system or this path cannot be used, on any machine of its kind.
func CheckPath(path string) error {
	switch {
	case !supported:
		return errNotHere
	case !filepath.IsAbs(path): // two processes have to find it
		return fmt.Errorf("%q is not an absolute path", path)
	case len(path) > maxPath:
		return fmt.Errorf("%q is longer than %d bytes", path, maxPath)
	}
	return nil
}

// Check returns an error if no process can wait at this path, as far as that is known before it does.
func Check(path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	if err := privatedir.Check(filepath.Dir(path)); err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is not a socket", path)
	}
	return nil
}
