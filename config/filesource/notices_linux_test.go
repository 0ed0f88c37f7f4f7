package filesource

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// watches counts the watches that this process has of the kernel. What fsnotify lists does not have those that it forgot.
func watches(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fdinfo")
	must(t, err)
	for _, fd := range fds {
		info, _ := os.ReadFile(filepath.Join("/proc/self/fdinfo", fd.Name())) // the one that listed them has gone
		n += strings.Count(string(info), "inotify wd:")
	}
	return n
}

// Old releases stay beside the new one: the kernel ends no watch by itself, and a user has only so many.
func TestALinkToTheDirectoryThatIsSwappedLeavesNoWatchBehind(t *testing.T) {
	base := t.TempDir()
	link := filepath.Join(base, "current")
	var dirs []string
	for _, below := range []string{"registry/services", "registry/services/specs"} {
		dirs = append(dirs, filepath.Join(link, below))
	}
	release := func(i int) string {
		name := fmt.Sprint("release", i)
		spec(t, filepath.Join(base, name), "a", 1)
		return name
	}
	must(t, os.Symlink(release(0), link))
	n := newNotices(link, false)
	defer n.close()
	before := watches(t)
	if !n.follow(dirs) {
		t.Error("directories that were not watched are not new")
	}
	wanted := watches(t)
	if wanted-before != len(dirs)+3 { // the directory, the one above it, and registry
		t.Errorf("%d watches at the start; want %d", wanted-before, len(dirs)+3)
	}
	for i := 1; i < 6; i++ {
		name := release(i)
		if i%2 == 0 { // not by one rename
			must(t, os.Remove(link))
			n.follow(nil)
		}
		must(t, os.Symlink(name, link+".new"))
		must(t, os.Rename(link+".new", link))
		if !n.follow(dirs) {
			t.Errorf("swap %d: directories that were not watched are not new", i)
		}
		if n.follow(dirs) {
			t.Errorf("swap %d: directories that are watched are new", i)
		}
		if got := watches(t); got != wanted {
			t.Errorf("swap %d: %d watches; want %d", i, got, wanted)
		}
	}
}
