package etcdtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/process"
)

// A Process is one etcd as a separate process. Its methods are for one goroutine, the test's.
type Process struct{ member *process.Etcd }

// StartProcess starts an etcd with its own empty data directory on free ports of 127.0.0.1, and
// returns when it is ready. The arguments are added to its command line; with --cert-file among
// them its URL is https. It is killed when the test ends.
func StartProcess(t testing.TB, args ...string) *Process {
	t.Helper()
	p := &Process{&process.Etcd{Name: "default", Data: t.TempDir(), Logs: t.TempDir(), Flags: args}}
	p.member.TLS = slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--cert-file") })
	t.Cleanup(p.Kill)
	// Another program may take the ports between our look and etcd's bind: look again then.
	for attempt := 1; ; attempt++ {
		err := p.member.ChoosePorts(lowPort, highPort)
		if err == nil {
			err = p.member.Start()
		}
		if err == nil {
			return p
		}
		if attempt == 5 || !portTaken(err) {
			t.Fatal(err)
		}
	}
}

// portTaken reports whether an etcd has not started because of one of its ports.
func portTaken(err error) bool { return strings.Contains(err.Error(), "address already in use") }

// URL is the address for clients.
func (p *Process) URL() string { return p.member.URL() }

// Addr is the host and port of [Process.URL].
func (p *Process) Addr() string { return p.member.Client }

// PID is that of the process that runs.
func (p *Process) PID() int { return p.member.Process.PID() }

// Client returns a client that is closed when the test ends. The edits are made to its
// configuration first: TLS, a user, another endpoint.
func (p *Process) Client(t testing.TB, edits ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	return newClient(t, p.URL(), edits...)
}

// DataDir is the directory that the next [Process.Start] uses.
func (p *Process) DataDir() string { return p.member.Data }

// SwapDataDir makes the next [Process.Start] use another directory, and gives the one used until
// now. The process must not be running.
func (p *Process) SwapDataDir(dir string) (old string) {
	if p.member.Running() == nil {
		panic("etcdtest: data directory of a running etcd swapped")
	}
	old, p.member.Data = p.member.Data, dir
	return old
}

// Start starts etcd again, on the same ports, after Kill or Stop.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	// Another test's look for free ports may hold one of ours for a moment.
	for deadline := time.Now().Add(process.EtcdStartTimeout); ; time.Sleep(50 * time.Millisecond) {
		err := p.member.Start()
		if err == nil {
			return
		}
		if !portTaken(err) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Kill ends etcd as a power cut would (SIGKILL) and waits until it is gone. It may be called again.
func (p *Process) Kill() { p.member.Process.Kill() }

// Stop ends etcd as an administrator would (SIGTERM) and waits until it is gone.
func (p *Process) Stop() { p.member.Process.Stop() }

// Pause freezes etcd, and returns when it is frozen: its connections stay open and nothing answers on them.
func (p *Process) Pause() { p.member.Process.Pause() }

// Resume lets a paused etcd go on.
func (p *Process) Resume() { p.member.Process.Resume() }
