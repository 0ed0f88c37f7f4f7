//go:build unix

package etcdtest

import "syscall"

// Pause freezes etcd: its connections stay open and nothing answers on them.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets a paused etcd go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }
