package process

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartTied starts a command that the kernel kills when this program dies without a chance to clean up: a test's time-out panics. What the
// command itself starts lives on.
func StartTied(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		// For the kernel the parent is a thread, not the program (PR_SET_PDEATHSIG in prctl(2)). The thread of the caller may end first, as that
		// of an engine's loop does; this one outlives the command.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
	}()
	return <-started
}

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
