//go:build unix && !linux

package etcdtest

import "syscall"

// Pause freezes etcd: its connections stay open and nothing answers on them.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }
