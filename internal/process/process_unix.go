//go:build unix

package process

import (
	"os/exec"
	"syscall"
)

// group gives a command a process group.
func group(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

func (p *Process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.PID(), sig) } // it may just have ended

// isReplaced reports, of a process that has ended, whether another one has its number: then its group is another one's, too. While a group has
// a member, the kernel gives its number to nobody.
func (p *Process) isReplaced() bool { return syscall.Kill(p.PID(), 0) != syscall.ESRCH }

// Resume lets a paused process go on.
func (p *Process) Resume() { p.Signal(syscall.SIGCONT) }
