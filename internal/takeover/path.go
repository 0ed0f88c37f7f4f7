package takeover

import (
	"errors"
	"fmt"
	"path/filepath"
)

// freshSuffix is added to a path while its socket is being made.
const freshSuffix = ".new"

// maxPath is how long the path of a UNIX socket may be: sun_path of Linux with its zero, and our suffix.
const maxPath = 108 - 1 - len(freshSuffix)

// ErrNobody is that no process waits for a successor.
var ErrNobody = errors.New("no process waits for a successor")

// CheckPath returns an error if no socket can have this path.
func CheckPath(path string) error {
	switch {
	case !filepath.IsAbs(path): // two processes have to find it
		return fmt.Errorf("%q is not an absolute path", path)
	case len(path) > maxPath:
		return fmt.Errorf("%q is longer than %d bytes", path, maxPath)
	}
	return nil
}
