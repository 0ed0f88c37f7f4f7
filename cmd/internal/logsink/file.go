package logsink

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/golang/glog"
)

// A directory has log files, with the names that glog gives them.
type directory struct {
	path, link          string
	program, host, user string
}

func newDirectory(path, link string) *directory {
	d := &directory{path: path, link: link, program: filepath.Base(os.Args[0]), host: "unknownhost", user: "unknownuser"}
	if d.path == "" {
		d.path = os.TempDir()
	}
	if host, err := os.Hostname(); err == nil {
		d.host, _, _ = strings.Cut(host, ".")
	}
	if u, err := user.Current(); err == nil {
		d.user = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, u.Username)
	}
	return d
}

var severityNames = [severities]string{"INFO", "WARNING", "ERROR", "FATAL"}

// A file is the log file of one severity: the present one of a row. It is made when it has its first line, and
// belongs to one goroutine.
type file struct {
	dir      *directory
	severity int
	path     string
	out      *os.File // nil before the first line
	size     int64
}

// open begins a new file. On an error the old one stays.
func (f *file) open(now time.Time) error {
	d, tag := f.dir, severityNames[f.severity]
	name := fmt.Sprintf("%s.%s.%s.log.%s.%s.%d", d.program, d.host, d.user, tag, now.Format("20060102-150405"), os.Getpid())
	path := filepath.Join(d.path, name)
	// O_EXCL: never a link that another user has put there. O_APPEND: a program that copies and truncates the file, as logrotate does with
	// copytruncate, leaves no hole at its beginning.
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	if f.out != nil {
		f.out.Close()
	}
	f.path, f.out, f.size = path, out, 0
	replaceLink(name, filepath.Join(d.path, d.program+"."+tag))
	if d.link != "" {
		replaceLink(path, filepath.Join(d.link, d.program+"."+tag))
	}
	return nil
}

// replaceLink has a link point to the newest file. Without it, nothing is lost.
func replaceLink(to, link string) {
	_ = os.Remove(link)
	_ = os.Symlink(to, link)
}

// Write begins another file when this one is full.
func (f *file) Write(lines []byte) (int, error) {
	if f.out == nil || f.size > 0 && f.size+int64(len(lines)) > int64(glog.MaxSize) {
		if err := f.open(time.Now()); err != nil && f.out == nil {
			return 0, err
		}
	}
	n, err := f.out.Write(lines)
	f.size += int64(n)
	return n, err
}

// Reopen begins another file, unless this one has not begun. Within the same second it is the same file.
func (f *file) Reopen() {
	if f.out == nil {
		return
	}
	if err := f.open(time.Now()); err != nil && !os.IsExist(err) {
		glog.Errorf("cannot begin another log file, going on with the one there is: %v", err)
	}
}
