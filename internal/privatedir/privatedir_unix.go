//go:build unix

package privatedir

import (
	"fmt"
	"os"
	"syscall"
)

// Check refuses a directory in which a user other than ours and root could replace a file.
func Check(dir string) error {
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
