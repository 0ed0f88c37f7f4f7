//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

// StartTied starts a command. Only on Linux is it tied to this program.
func StartTied(cmd *exec.Cmd) error { return cmd.Start() }

// Pause freezes the process: its connections stay open and nothing answers on them.
func (p *Process) Pause() { p.Signal(syscall.SIGSTOP) }
