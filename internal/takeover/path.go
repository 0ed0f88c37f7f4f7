package takeover

import (
	"errors"

	"kubeproxy/internal/ownersocket"
)

// errNotHere is why there is no take-over on another system.
var errNotHere = errors.New("there is no take-over on this system, only on Linux")

// ErrNobody is that no process waits for a successor.
var ErrNobody = errors.New("no process waits for a successor")

// CheckPath returns an error if this system or this path cannot be used, on any machine of its kind.
func CheckPath(path string) error {
	if !supported {
		return errNotHere
	}
	return ownersocket.CheckPath(path)
}

// Check returns an error if no process can wait at this path, as far as that is known before it does.
func Check(path string) error {
	if !supported {
		return errNotHere
	}
	return ownersocket.Check(path)
}
