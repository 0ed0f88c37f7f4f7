package etcdtest

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Pause freezes etcd, and returns when it is frozen: its connections stay open and nothing answers on them.
func (p *Process) Pause() {
	p.signal(syscall.SIGSTOP)
	if !p.running() {
		return
	}
	// Whichever of its threads takes the signal stops the others. Until that one is given a processor they go on.
	for unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
