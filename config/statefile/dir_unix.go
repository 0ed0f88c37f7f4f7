//go:build unix

package statefile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// checkDir refuses a directory in which another user could replace the file: who writes the state decides where clients go.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("other users may write to %s: its mode has to be 0700", dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() && st.Uid != 0 {
		return fmt.Errorf("%s belongs to user %d, and this process runs as user %d", dir, st.Uid, os.Geteuid())
	}
	return nil
}

// syncDir makes a rename in a directory last through a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
