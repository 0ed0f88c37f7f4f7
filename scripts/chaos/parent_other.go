//go:build !linux

package main

import "os/exec"

// endWithParent does nothing here: only Linux can tie a process to its parent.
func endWithParent(*exec.Cmd) {}
