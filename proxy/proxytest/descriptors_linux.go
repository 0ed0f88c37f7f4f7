package proxytest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// countsDescriptors reports whether the descriptors of this process can be listed.
const countsDescriptors = true

// Descriptors lists what this process has open, each as "number what", where a socket is named by
// its inode: so a descriptor that was closed and used again is another one.
func Descriptors(t testing.TB) []string {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("list the descriptors of this process: %v", err)
	}
	var open []string
	for _, entry := range entries {
		// The descriptor with which the directory was read is closed by now.
		if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil {
			open = append(open, fmt.Sprintf("%s %s", entry.Name(), target))
		}
	}
	return open
}
