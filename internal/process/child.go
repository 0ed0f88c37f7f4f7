package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
)

// A Process is one run of a program. It is safe for concurrent use.
type Process struct {
	Output string // the file that its output goes to; empty: where its caller sends it

	name   string
	cmd    *exec.Cmd
	exited chan struct{} // closed once it is gone
	over   atomic.Bool   // it was killed: its number may be another's
}

// PID returns its id, which on Unix is also that of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when it is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State reports how it ended, once it is gone.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Running returns nil while the process runs, and then an error with its last words. A nil process does not run.
func (p *Process) Running() error {
	if p == nil {
		return errors.New("was not started")
	}
	select {
	case <-p.exited:
		return fmt.Errorf("%s has ended (%v):\n%s", p.name, p.State(), p.LastWords())
	default:
		return nil
	}
}

// LastWords returns the end of the output.
func (p *Process) LastWords() string {
	text, _ := os.ReadFile(p.Output) // without it there is nothing to show
	return string(text[max(0, len(text)-4000):])
}
