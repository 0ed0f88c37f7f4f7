package connlog

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/traffic"
)

// queued is how many lines may wait to be written: a second's worth at a rate that two cores
// hardly reach. They take 200 bytes each.
const queued = 16 << 10

// chunk is how many bytes are gathered before they are written, if more lines are waiting.
const chunk = 64 << 10

// lull is how long lines are collected once all have been written. To be woken up for each line would cost
// as much as a third of a short connection does.
const lull = 50 * time.Millisecond

// A Log is a connection log. Record may be called by any goroutine; Run writes.
type Log struct {
	path    string // "-" is standard output
	node    string // its name
	entries chan entry
	reopen  chan struct{} // capacity 1: a full channel means that it is due already
	out     io.WriteCloser

	written atomic.Uint64 // lines
	dropped atomic.Uint64

	trouble atomic.Pointer[string] // the error of the last write that failed; nil once it was reported

	torn  bool      // what was written last ends in the middle of a line; after Open used by writeAll only
	found int64     // the size of a file that was found torn; 0: none was. As torn
	told  uint64    // how many of the dropped lines were reported; used by Run only
	quiet time.Time // until then no line about drops is logged; used by Run only
}

// Open opens the log of a node at path, which is made with mode 0640 if it is not there, and appended to if it
// is. The path "-" stands for standard output.
func Open(path, node string) (*Log, error) {
	l := &Log{path: path, node: node, entries: make(chan entry, queued), reopen: make(chan struct{}, 1)}
	out, err := l.open()
	if err != nil {
		return nil, err
	}
	l.out, l.found = out, l.tornSize(out)
	return l, nil
}

func (l *Log) open() (io.WriteCloser, error) {
	if l.path == "-" {
		return standardOutput{}, nil
	}
	// O_NONBLOCK: a named pipe without a reader is an error here, where opening it would wait for ever.
	return os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o640)
}

// tornSize returns the size of a file that was opened and ends in the middle of a line, as one does whose process was killed or whose disk
// was full; else 0. Of one that is no regular file, or that we may not read, it is not known: 0.
func (l *Log) tornSize(out io.WriteCloser) int64 {
	info := statOf(out)
	if info == nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return 0
	}
	file, err := os.OpenFile(l.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // out is for writing only
	if err != nil {
		return 0
	}
	defer file.Close()
	var last [1]byte
	if _, err = file.ReadAt(last[:], info.Size()-1); err != nil || last[0] == '\n' {
		return 0
	}
	return info.Size()
}

// endsTorn reports whether the next line would be glued to a torn one. A file that was found torn and has grown since is not: a process that we take
// over from was at its write, which readers see in parts.
func (l *Log) endsTorn() bool {
	if l.torn || l.found == 0 {
		return l.torn
	}
	info := statOf(l.out)
	return info != nil && info.Size() == l.found
}

// statOf returns what a file is; nil if it is not one.
func statOf(out io.WriteCloser) os.FileInfo {
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil {
			return info
		}
	}
	return nil
}

// isSame reports whether two are one file, such as a pipe that is opened again.
func isSame(a, b io.WriteCloser) bool {
	if is, other := statOf(a), statOf(b); is != nil && other != nil {
		return os.SameFile(is, other)
	}
	return a == b
}

// standardOutput is not ours to close.
type standardOutput struct{}

func (standardOutput) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (standardOutput) Close() error                { return nil }

// Record has a line written about an ending, while the change of a revision is the last that is in force. It never waits: a line for which
// there is no room is counted as dropped.
func (l *Log) Record(e traffic.Ending, revision int64) {
	l.record(entry{Ending: e, revision: revision})
}

// RecordStart has a line written about a client that was given an endpoint, as Record does.
func (l *Log) RecordStart(e traffic.Ending, revision int64) {
	l.record(entry{Ending: e, revision: revision, start: true})
}

func (l *Log) record(e entry) {
	select {
	case l.entries <- e:
	default:
		l.dropped.Add(1)
	}
}

// Reopen has the file opened anew, by its name: for those who have just moved it away.
func (l *Log) Reopen() {
	select {
	case l.reopen <- struct{}{}:
	default:
	}
}

// Written counts the lines that were written.
func (l *Log) Written() uint64 { return l.written.Load() }

// Dropped counts the lines that were lost: there was no room, or they could not be written.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// lastWords is how long Run waits at the end for a reader who does not read.
const lastWords = 3 * time.Second

// Run writes what is recorded until ctx ends, then what had been recorded by then, closes the file, and
// returns. If by then the one who reads the pipe does not, it gives up after a while, and what is stuck
// stays behind until the process ends.
func (l *Log) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.writeAll(ctx)
	}()
	ticker := time.NewTicker(checkDrops)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
			l.complain(time.Now())
		case <-ctx.Done():
		}
	}
	late := time.NewTimer(lastWords)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		glog.Warningf("connection log: %s is not read; the last lines are lost", l.path)
	}
	l.complain(time.Time{})
}

// writeAll writes until ctx ends, and then the rest.
func (l *Log) writeAll(ctx context.Context) {
	defer func() { l.out.Close() }()
	buf := make([]byte, 0, chunk+4096)
	for {
		select {
		case e := <-l.entries:
			l.write(l.gather(buf, e))
			if len(l.entries) == 0 {
				select {
				case <-time.After(lull):
				case <-ctx.Done():
				}
			}
		case <-l.reopen:
			l.change()
		case <-ctx.Done():
			for {
				select {
				case e := <-l.entries:
					l.write(l.gather(buf, e))
				default:
					return
				}
			}
		}
	}
}

// gather makes lines of an entry and of those that are waiting behind it, up to a chunk.
func (l *Log) gather(buf []byte, e entry) (lines []byte, n uint64) {
	lines = e.appendLine(buf[:0], l.node)
	for n = 1; len(lines) < chunk; n++ {
		select {
		case e = <-l.entries:
			lines = e.appendLine(lines, l.node)
		default:
			return lines, n
		}
	}
	return lines, n
}

// write writes n lines. If that fails they are lost; the next ones are tried again, because disks are
// emptied and readers come back.
func (l *Log) write(lines []byte, n uint64) {
	if l.endsTorn() {
		if _, err := io.WriteString(l.out, "\n"); err != nil {
			l.lose(n, err)
			return
		}
	}
	l.torn, l.found = false, 0
	written, err := l.out.Write(lines)
	if err == nil {
		l.written.Add(n)
		return
	}
	whole := uint64(bytes.Count(lines[:written], []byte{'\n'}))
	l.torn = written > 0 && lines[written-1] != '\n'
	l.written.Add(whole)
	l.lose(n-whole, err)
}

// lose counts n lines that could not be written.
func (l *Log) lose(n uint64, err error) {
	reason := err.Error()
	l.trouble.Store(&reason)
	l.dropped.Add(n)
}

// change goes on with the file that has the log's name now. If it cannot be opened, the one that is
// open is kept: better a line in the wrong place than none.
func (l *Log) change() {
	out, err := l.open()
	if err != nil {
		glog.Errorf("connection log: cannot reopen it, going on with the file as it was: %v", err)
		return
	}
	torn, found := l.torn && isSame(l.out, out), l.tornSize(out)
	l.out.Close()
	l.out, l.torn, l.found = out, torn, found
	glog.Infof("connection log: reopened %s", l.path)
}

// How often lost lines are looked for, and told of.
const (
	checkDrops = time.Second
	quietFor   = time.Minute
)

// complain tells of lines that were lost since it last did, unless that was a moment ago. The zero
// time is always late enough.
func (l *Log) complain(now time.Time) {
	lost := l.dropped.Load() - l.told
	if lost == 0 || !now.IsZero() && now.Before(l.quiet) {
		return
	}
	l.told += lost
	l.quiet = now.Add(quietFor)
	why := "they came faster than they could be written"
	if reason := l.trouble.Swap(nil); reason != nil {
		why = *reason
	}
	glog.Warningf("connection log: %d lines were lost: %s", lost, why)
}
