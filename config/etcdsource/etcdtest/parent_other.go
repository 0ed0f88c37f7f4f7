//go:build !linux

package etcdtest

import "os/exec"

// endWithParent does nothing here: only Linux can tie a process to its parent.
func endWithParent(*exec.Cmd) {}
