//go:build !unix

package statefile

import (
	"fmt"
	"os"
)

// checkDir checks that dir is a directory. Who may write to it is a matter of access lists, which are not read.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return nil
}

// syncDir does nothing: a directory cannot be opened here.
func syncDir(string) error { return nil }
