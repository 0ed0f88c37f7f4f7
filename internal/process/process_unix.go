//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

// TieToParent gives a command a process group. Only Linux can tie it to its parent.
func TieToParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

func (p *Process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.PID(), sig) } // it may just have ended

// isReplaced reports, of a process that has ended, whether another one has its number: then its group is another one's, too.
func (p *Process) isReplaced() bool { return syscall.Kill(p.PID(), 0) != syscall.ESRCH }

// Pause freezes the process: its connections stay open and nothing answers on them.
func (p *Process) Pause() { p.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() { p.Signal(syscall.SIGCONT) }
