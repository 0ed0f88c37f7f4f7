package etcdtest

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the process when the tests die without a chance to clean up (a
// time-out panics). See PR_SET_PDEATHSIG in prctl(2).
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
