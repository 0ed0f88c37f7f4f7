//go:build !linux

package sockopt

import "errors"

// Duplicate fails: only Linux has service managers that keep sockets.
func Duplicate(int) (int, error) { return -1, errors.ErrUnsupported }

// Close does nothing: Duplicate returns none.
func Close(int) {}

// EndListening does nothing.
func EndListening(int) {}
