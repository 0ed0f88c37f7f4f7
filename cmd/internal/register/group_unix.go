//go:build unix

package register

import (
	"os/exec"
	"syscall"
	"time"
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
	reap(cmd.Process.Pid)
	return err
}

// reap waits for the killed processes of a group whose parents have ended: process 1 of a container is their new parent, and they keep their process
// ids until it waits for them. Any other process has no children in the group, and returns at once. A process that has not ended within a second
// is left.
func reap(group int) {
	for until := time.Now().Add(time.Second); ; {
		switch pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); {
		case err == syscall.EINTR || pid > 0:
		case err != nil || time.Now().After(until): // ECHILD: none is left
			return
		default: // it is still about to end
			time.Sleep(time.Millisecond)
		}
	}
}
