package process

import "syscall"

// forbidForks keeps this process from starting others until the returned function is called. A process that is being started has copies of
// all descriptors of its parent until it executes its program: so a socket that was closed meanwhile would still have its port.
func forbidForks() (allow func()) {
	syscall.ForkLock.RLock()
	return syscall.ForkLock.RUnlock
}
