package logsink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A disk takes some bytes, and no more until it is emptied.
type disk struct {
	mu   sync.Mutex // guards the fields below
	text strings.Builder
	room int
}

var errFull = errors.New("no space left")

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(b), d.room)
	d.text.Write(b[:n])
	d.room -= n
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

func (d *disk) empty(room int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = room
}

// end stops the goroutine of an outlet.
func (o *outlet) end() { close(o.wake) }

func TestLinesThatCannotBeWrittenAreCountedAndTheNextBeginALine(t *testing.T) {
	d := &disk{room: 10}
	o := newOutlet("disk", d)
	defer o.end()
	before := Dropped()
	o.put(0, []byte("whole\n"))
	<-o.drained()
	o.put(0, []byte("torn line\n"))
	o.put(0, []byte("lost line\n"))
	<-o.drained()
	if n := Dropped() - before; n < 1 || n > 2 {
		t.Errorf("%d lines were counted as lost; want those two, or the one without the torn one", n)
	}
	d.empty(1000)
	o.put(0, []byte("next\n"))
	<-o.drained()
	if got, want := d.text.String(), "whole\ntorn\nnext\n"; got != want {
		t.Errorf("written: %q; want %q", got, want)
	}
}

// blocked never returns from Write until it is let go.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) { <-b; return len(p), nil }

func TestAQueueIsBoundedAndNeverWaits(t *testing.T) {
	let := make(blocked)
	o := newOutlet("a reader that sleeps", let)
	defer o.end()
	before, line := Dropped(), []byte(strings.Repeat("x", 999)+"\n")
	const lines = 5000
	for range lines { // would wait for ever, were there no bound
		o.put(0, line)
	}
	most := 2*room/len(line) + 1 // one load is being written, another waits
	if n := Dropped() - before; n < lines-uint64(most) || n > lines {
		t.Errorf("%d of %d lines were lost; want all but %d at most", n, lines, most)
	}
	close(let)
	<-o.drained()
}

func TestAMessageIsTakenForItsSeverity(t *testing.T) {
	for line, want := range map[string]int{
		"I1122 15:56:13.123456 1 a.go:1] x\n": 0, "W1122 15": 1, "E1122 1": 2, "F1122 1": 3,
		"goroutine 1 [running]:\n": -1, "\n": -1, "I112x 1": -1, "X1122 1": -1, "": -1,
	} {
		got, ok := severityOf([]byte(line))
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %v; want %d", line, got, ok, want)
		}
	}
}

func TestFilesHaveGlogsNamesAndBeginAnewWhenReopened(t *testing.T) {
	dir := t.TempDir()
	f := &file{dir: newDirectory(dir, ""), severity: 1}
	write := func(line string) {
		t.Helper()
		if _, err := f.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	f.Reopen() // nothing to reopen
	write("first\n")
	if err := f.open(time.Now().Add(-time.Hour)); err != nil { // as Reopen does, at another time
		t.Fatal(err)
	}
	write("second\n")
	f.Reopen() // the same second as the first: this file stays
	write("third\n")
	text, err := os.ReadFile(filepath.Join(dir, f.dir.program+".WARNING"))
	if err != nil || string(text) != "second\nthird\n" && string(text) != "third\n" {
		t.Errorf("the link leads to %q, %v", text, err)
	}
	names, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%s.*.log.WARNING.*-*.%d", f.dir.program, os.Getpid())))
	if err != nil || len(names) < 2 {
		t.Errorf("files: %q, %v; want two or three", names, err)
	}
	f.out.Close()
}

// logrotate with copytruncate copies the file and truncates it, while the program goes on writing.
func TestAFileThatIsTruncatedGoesOnAtItsBeginning(t *testing.T) {
	f := &file{dir: newDirectory(t.TempDir(), ""), severity: 0}
	for _, line := range []string{"first\n", "second\n"} {
		if _, err := f.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if line == "first\n" {
			if err := os.Truncate(f.path, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if text, err := os.ReadFile(f.path); string(text) != "second\n" || err != nil {
		t.Errorf("the file has %q, %v; want the second line alone", text, err)
	}
	f.out.Close()
}
