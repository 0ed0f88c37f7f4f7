//go:build unix

package logsink

import (
	"os"
	"syscall"
)

// identity is the device and the inode of a file.
func identity(f *os.File) (device, inode uint64, ok bool) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(stat.Dev), uint64(stat.Ino), true
}
