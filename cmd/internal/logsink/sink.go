package logsink

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"sync"
	"time"
)

// A Config says where log lines go.
type Config struct {
	ToFiles   bool   // to files, and to standard error from Threshold on; else all to standard error
	Also      bool   // with ToFiles: all lines to standard error as well
	Threshold int    // with ToFiles: a severity of glog, 0 for INFO to 3 for FATAL
	Dir       string // of the files; empty: the directory for temporary files
	Link      string // directory for symbolic links to the files; empty: none, but those in Dir
}

// A Sink takes the lines that glog writes. There is one in a process, from [Start] to its end.
type Sink struct {
	cfg    Config
	pipe   *os.File // where lines are written
	stderr *outlet
	files  [severities]*outlet // with ToFiles

	mu      sync.Mutex               // guards the fields below
	flushes map[string]chan struct{} // those who wait in Flush, by their marks
	marks   int
}

// Start has all that is written to os.Stderr from now on go where cfg says. An error is about a directory that cannot
// have log files. The journal's priorities are added to lines when standard error is connected to it.
func Start(cfg Config) (*Sink, error) {
	s := &Sink{cfg: cfg, flushes: make(map[string]chan struct{})}
	var dir *directory
	if cfg.ToFiles {
		dir = newDirectory(cfg.Dir, cfg.Link)
		info := &file{dir: dir, severity: 0}
		if err := info.open(time.Now()); err != nil {
			return nil, err
		}
		s.files[0] = newOutlet(info.path, info)
		for severity := 1; severity < severities; severity++ {
			s.files[severity] = newOutlet(dir.path, &file{dir: dir, severity: severity})
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for log lines: %w", err)
	}
	s.stderr = newOutlet("standard error", os.Stderr)
	s.stderr.priorities = journalListens(os.Stderr)
	s.pipe = writer
	os.Stderr = writer
	log.SetOutput(writer)
	go s.read(reader)
	return s, nil
}

// read hands on what comes through the pipe, for as long as the process lives. It never waits for an outlet.
func (s *Sink) read(from io.Reader) {
	severity := 0
	for lines := bufio.NewReaderSize(from, 64<<10); ; {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			if done := s.flushed(line); done {
				continue
			}
			if of, ok := severityOf(line); ok {
				severity = of
			} // else it goes on with the message before
			s.hand(severity, line)
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

func (s *Sink) hand(severity int, line []byte) {
	if !s.cfg.ToFiles {
		s.stderr.put(severity, line)
		return
	}
	if s.cfg.Also || severity >= s.cfg.Threshold {
		s.stderr.put(severity, line)
	}
	for _, file := range s.files[:severity+1] { // as glog does: a file has its severity and all above
		file.put(severity, line)
	}
}

// Flush waits until all lines that were written before have been handed to their destinations, at most for so long.
func (s *Sink) Flush(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	marked := make(chan struct{})
	s.mu.Lock()
	s.marks++
	mark := fmt.Sprintf("\x00flush %d\n", s.marks)
	s.flushes[mark] = marked
	s.mu.Unlock()
	if _, err := io.WriteString(s.pipe, mark); err != nil {
		return
	}
	select {
	case <-marked:
	case <-ctx.Done():
		return
	}
	for _, o := range s.outlets() {
		select {
		case <-o.drained():
		case <-ctx.Done():
			return
		}
	}
}

// flushed reports whether a line is the mark of a Flush, and tells the one who waits for it.
func (s *Sink) flushed(line []byte) bool {
	if line[0] != 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, ok := s.flushes[string(line)]
	if ok {
		close(waiting)
		delete(s.flushes, string(line))
	}
	return ok
}

func (s *Sink) outlets() []*outlet {
	return slices.DeleteFunc(append([]*outlet{s.stderr}, s.files[:]...), func(o *outlet) bool { return o == nil })
}

// Reopen begins new log files with the next lines, if there are any: for programs that rotate logs.
func (s *Sink) Reopen() {
	for _, o := range s.files {
		if o != nil {
			o.reopen.Store(true)
		}
	}
}

// Dropped is the number of log lines that were lost: there was no room in a queue, or they could not be written.
func Dropped() uint64 { return dropped.Load() }
