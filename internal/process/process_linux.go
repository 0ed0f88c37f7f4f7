package process

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// TieToParent has the kernel kill a command when this program dies without a chance to clean up (a test's time-out
// panics; see PR_SET_PDEATHSIG in prctl(2)), and gives it a process group. What the command itself starts lives on.
func TieToParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
}

func (p *Process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.PID(), sig) } // it may just have ended

// isReplaced reports, of a process that has ended, whether another one has its number: then its group is another one's, too. While a group has
// a member, the kernel gives its number to nobody.
func (p *Process) isReplaced() bool { return syscall.Kill(p.PID(), 0) != syscall.ESRCH }

// Pause freezes the process, and returns when it is frozen: its connections stay open and nothing answers on them.
func (p *Process) Pause() {
	if p.Running() != nil {
		return
	}
	p.signal(syscall.SIGSTOP)
	// The thread that takes the signal stops the others. Until it is given a processor they go on.
	for unix.Waitid(unix.P_PID, p.PID(), nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// Resume lets a paused process go on.
func (p *Process) Resume() { p.Signal(syscall.SIGCONT) }
