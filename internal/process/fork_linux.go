package process

import (
	"os"
	"sync"
	"syscall"
)

// tryFork has package os do at once what it does before the first process is started, or looked for: it starts one that ends, to see whether
// the kernel can. It takes no lock for that.
var tryFork = sync.OnceFunc(func() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
})

// forbidForks keeps this process from starting others until the returned function is called. A process that is being started has copies of
// all descriptors of its parent until it executes its program: so a socket that was closed meanwhile would still have its port.
func forbidForks() (allow func()) {
	tryFork()
	syscall.ForkLock.RLock()
	return syscall.ForkLock.RUnlock
}
