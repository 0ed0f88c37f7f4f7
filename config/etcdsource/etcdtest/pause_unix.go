//go:build unix

package etcdtest

import "syscall"

// Resume lets a paused etcd go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }
