//go:build !unix

package process

import (
	"os/exec"
	"syscall"
)

// StartTied starts a command. This system cannot tie it to its parent.
func StartTied(cmd *exec.Cmd) error { return cmd.Start() }

// group does nothing: this system has no process groups.
func group(*exec.Cmd) {}

func (p *Process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) } // it may just have ended

// isReplaced reports that another process may have the number.
func (p *Process) isReplaced() bool { return true }

// Pause panics: this system cannot freeze a process.
func (p *Process) Pause() { panic("process: this system cannot freeze a process") }

// Resume does nothing: no process is paused.
func (p *Process) Resume() {}
