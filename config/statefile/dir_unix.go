//go:build unix

package statefile

import (
	"errors"
	"os"
)

// syncDir makes a rename in a directory last through a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
