package filesource

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/golang/glog"

	"kubeproxy/internal/keyfiles"
	"kubeproxy/registry"
)

// maxFollowed is how many directories are watched for notices. Each takes a little of the kernel's memory and of a limit that all
// programs of the user share. Beyond it the scan period finds what has changed.
const maxFollowed = 1000

// notices are what the operating system says of changes in the directory. They are hints: each one only makes a scan come sooner.
type notices struct {
	heard   chan struct{} // capacity 1: something may have changed
	dir     string
	watcher *fsnotify.Watcher      // nil: there are no notices
	follows map[string]os.FileInfo // the directory at each path that is watched; belongs to the source's goroutine
	done    chan struct{}
}

// newNotices begins to listen. Without notices, which is a reason for a warning and no more, nothing is ever heard.
func newNotices(dir string, none bool) *notices {
	n := &notices{heard: make(chan struct{}, 1), dir: dir, follows: make(map[string]os.FileInfo), done: make(chan struct{})}
	if none {
		return n
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		glog.Warningf("no notices of changes in %s: %v; they take effect with the next scan", registry.Quote(dir), err)
		return n
	}
	n.watcher = watcher
	go n.listen()
	return n
}

func (n *notices) close() {
	if n.watcher == nil {
		return
	}
	_ = n.watcher.Close() // nothing depends on it
	<-n.done
}

// listen turns events into one pending notice. An error is one too: it says that events were lost.
func (n *notices) listen() {
	defer close(n.done)
	for {
		select {
		case e, ok := <-n.watcher.Events:
			if !ok {
				return
			}
			if n.matters(e.Name) {
				n.expect()
			}
		case _, ok := <-n.watcher.Errors:
			if !ok {
				return
			}
			n.expect()
		}
	}
}

// matters reports whether what happened at path can change a value. Files that are about to be renamed say so when they are. Of what
// lies on the way to the keys, and beside it, only the way itself matters.
func (n *notices) matters(path string) bool {
	if path == n.dir {
		return true
	}
	below, ok := strings.CutPrefix(path, n.dir+string(filepath.Separator))
	if !ok {
		return false
	}
	name := filepath.Base(below)
	if name == keyfiles.DataLink {
		return true
	}
	onTheWay := strings.HasPrefix(keysBelow+string(filepath.Separator), below+string(filepath.Separator))
	return onTheWay || !keyfiles.LeftOut(name) && strings.HasPrefix(below, keysBelow+string(filepath.Separator))
}

// keysBelow is where the files with keys are, below the directory.
var keysBelow = filepath.FromSlash(strings.Trim(registry.Prefix, "/"))

// expect notes that something may have changed.
func (n *notices) expect() {
	select {
	case n.heard <- struct{}{}:
	default:
	}
}

// Changes come in groups, and files are often written in several steps. A scan in the middle of one harms nothing: half a value does
// not decode, so the value before it stays in force. But it takes time, and writes a line into the log.
const (
	quiet   = 10 * time.Millisecond // without a notice: it is over
	maxWait = 40 * time.Millisecond // it may never be
)

// settle waits, after a notice, for quiet, but not longer than maxWait; and then until rest.
func (n *notices) settle(ctx context.Context, rest time.Time) {
	limit := time.NewTimer(max(maxWait, time.Until(rest)))
	defer limit.Stop()
	pause := time.NewTimer(max(quiet, time.Until(rest)))
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-limit.C:
			return
		case <-pause.C:
			return
		case <-n.heard:
			pause.Reset(max(quiet, time.Until(rest)))
		}
	}
}

// follow watches these directories, the ones that lead to them, and no others. It reports whether some are new. A path may by now
// lead to another directory than before, which counts as new if its inode is another one, so all of them are watched again.
func (n *notices) follow(dirs []string) (fresh bool) {
	if n.watcher == nil {
		return false
	}
	wanted := make(map[string]os.FileInfo)
	want := func(dir string) {
		wanted[dir], _ = os.Stat(dir) // nil, which is no directory's: it is not there
	}
	want(n.dir)
	want(filepath.Join(n.dir, "registry"))
	if info, err := os.Lstat(n.dir); err != nil || !info.IsDir() {
		want(filepath.Dir(n.dir)) // it may come, or the link to it be swapped; a directory itself tells when it goes
	}
	for _, dir := range dirs {
		if len(wanted) < maxFollowed {
			want(dir)
		}
	}
	// fsnotify v1.10.1 does not end the watch of the directory that a path led to before, so we do. We do it before any other is added: two
	// paths to one directory have one watch.
	for dir, was := range n.follows {
		if !os.SameFile(was, wanted[dir]) {
			_ = n.watcher.Remove(dir) // it may have gone by itself
			delete(n.follows, dir)
		}
	}
	for dir, now := range wanted {
		if n.watcher.Add(dir) != nil {
			continue // perhaps for want of permission; a watch that it has stays, and tells when that changes
		}
		_, known := n.follows[dir]
		fresh = fresh || !known
		n.follows[dir] = now
	}
	return fresh
}
