package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A shell is the bash that a reader would have open: what one block sets, the next one finds.
type shell struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // what it prints; closed when it has ended
	dir   string      // for the block that runs
}

// endOfBlock is what the shell prints after each block. No command prints it.
const endOfBlock = "-- that was the block --"

// blockTimeout is how long a block may take.
const blockTimeout = time.Minute

func startShell() (*shell, error) {
	dir, err := os.MkdirTemp("", "labcheck-")
	if err != nil {
		return nil, err
	}
	s := &shell{cmd: exec.Command("bash", "--noprofile", "--norc"), lines: make(chan string), dir: dir}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that close reaches what it has started
	s.in, err = s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stderr = s.cmd.Stdout
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			s.lines <- scanner.Text()
		}
	}()
	return s, nil
}

// run runs a block, and gives the lines that it prints, errors among them. The commands cannot read
// what follows them: their standard input is empty.
func (s *shell) run(script string) ([]string, error) {
	file := filepath.Join(s.dir, "block")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return nil, err
	}
	// The first echo ends a last line that has no newline of its own.
	if _, err := fmt.Fprintf(s.in, ". '%s' </dev/null\necho; echo '%s'\n", file, endOfBlock); err != nil {
		return nil, fmt.Errorf("the shell has ended: %w", err)
	}
	var got []string
	for late := time.After(blockTimeout); ; {
		select {
		case line, ok := <-s.lines:
			if !ok {
				return nil, fmt.Errorf("the shell ended after %q", got)
			}
			if line != endOfBlock {
				got = append(got, line)
				continue
			}
			if n := len(got); n > 0 && got[n-1] == "" {
				got = got[:n-1]
			}
			return got, nil
		case <-late:
			return nil, fmt.Errorf("still running after %v, having printed:\n%s", blockTimeout, indent(strings.Join(got, "\n")))
		}
	}
}

// close ends the shell and what it has left running, except for what has left its process group.
func (s *shell) close() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	_ = s.cmd.Wait()                                      // killed; and it closes our end of the pipe
	for range s.lines {
	}
	os.RemoveAll(s.dir)
}
