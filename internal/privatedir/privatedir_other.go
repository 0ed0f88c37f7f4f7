//go:build !unix

package privatedir

import (
	"fmt"
	"os"
)

// Check checks that dir is a directory. Who may write to it is a matter of access lists, which are not read.
func Check(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return nil
}
