//go:build !linux

package process

import "io"

// AgainInOwnNetwork does nothing here: only Linux has network namespaces.
func AgainInOwnNetwork([]string, io.Writer, io.Writer, func() error) (status int, done bool, err error) {
	return 0, false, nil
}
