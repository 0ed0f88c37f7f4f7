//go:build !unix

package etcdtest

// Pause panics: this system cannot freeze a process.
func (p *Process) Pause() { panic("etcdtest: no process can be paused here") }

// Resume does nothing: no etcd is paused.
func (p *Process) Resume() {}
