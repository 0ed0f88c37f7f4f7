//go:build unix

package register

import (
	"os/exec"
	"syscall"
)

// runInGroup runs a command in a process group of its own, and kills what is left of the group when the command ends or its context does: else
// whatever a shell has started outlives a check that hangs, or is left behind by one that passes.
func runInGroup(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	if err := cmd.Start(); err != nil {
		return err
	}
	err := cmd.Wait()
	_ = kill() // of an empty group it fails
	return err
}
