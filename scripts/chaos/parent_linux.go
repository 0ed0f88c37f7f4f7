package main

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the process when this one dies without a chance to clean up. See
// PR_SET_PDEATHSIG in prctl(2).
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
