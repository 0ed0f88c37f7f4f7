package ownersocket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kubeproxy/internal/privatedir"
)

// ErrNotHere is why there is no such socket on another system.
var ErrNotHere = errors.New("who is at the other end of a UNIX socket is known on Linux only")

// freshSuffix is added to a path while its socket is being made.
const freshSuffix = ".new"

// maxPath is how long the path of a UNIX socket may be: sun_path of Linux with its zero, and our suffix.
const maxPath = 108 - 1 - len(freshSuffix)

// CheckPath returns an error if this path cannot be used, on any machine of its kind.
func CheckPath(path string) error {
	switch {
	case !filepath.IsAbs(path): // two processes have to find it
		return fmt.Errorf("%q is not an absolute path", path)
	case len(path) > maxPath:
		return fmt.Errorf("%q is longer than %d bytes", path, maxPath)
	}
	return nil
}

// Check returns an error if no process can listen at this path, as far as that is known before it does.
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

// A Peer is the process at the other end of a socket.
type Peer struct {
	PID int // 0: it has no number in our PID namespace
	UID int
}

// IsTrusted reports whether the peer belongs to our own user, or to root.
func (p Peer) IsTrusted() bool { return p.UID == os.Geteuid() || p.UID == 0 }

// Distrust is the error about a peer that is not trusted; nil for one that is.
func (p Peer) Distrust() error {
	if p.IsTrusted() {
		return nil
	}
	return fmt.Errorf("it belongs to user %d, and this process to user %d", p.UID, os.Geteuid())
}
