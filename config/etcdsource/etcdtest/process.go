package etcdtest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// startTimeout bounds how long an etcd may take to say that it is ready. A loaded machine is slow;
// an etcd that will never be ready exits, which is noticed at once.
const startTimeout = time.Minute

// binary builds etcd from the version that go.mod pins, once for all tests of a process, and gives
// its path. The Go build cache keeps the result. CGO is off, as in plain builds, so that a race
// build of the tests does not compile a second etcd.
var binary = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "tool", "-n", "go.etcd.io/etcd/server/v3")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build etcd: %w: %s", err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// A Process is one etcd as a separate process. Its methods are for one goroutine, the test's.
type Process struct {
	args       []string
	dir        string
	scheme     string
	client     int // the ports stay the same through every restart
	peer       int
	cmd        *exec.Cmd
	exited     chan struct{} // closed once cmd is gone
	lastOutput *tail
}

// StartProcess starts an etcd with its own empty data directory on free ports of 127.0.0.1, and
// returns when it is ready. The arguments are added to its command line; with --cert-file among
// them its URL is https. It is killed when the test ends.
func StartProcess(t testing.TB, args ...string) *Process {
	t.Helper()
	p := &Process{args: args, dir: t.TempDir(), scheme: "http"}
	if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--cert-file") }) {
		p.scheme = "https"
	}
	t.Cleanup(p.Kill)
	// Somebody else may take the ports between our look and etcd's bind: look again then.
	for attempt := 1; ; attempt++ {
		err := p.choosePorts()
		if err == nil {
			err = p.start()
		}
		if err == nil {
			return p
		}
		if attempt == 5 || !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
	}
}

// URL is the address for clients.
func (p *Process) URL() string { return fmt.Sprintf("%s://127.0.0.1:%d", p.scheme, p.client) }

// Addr is the host and port of [Process.URL].
func (p *Process) Addr() string { return fmt.Sprintf("127.0.0.1:%d", p.client) }

// Client returns a client that is closed when the test ends. The edits are made to its
// configuration first: TLS, a user, another endpoint.
func (p *Process) Client(t testing.TB, edits ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	return newClient(t, p.URL(), edits...)
}

// DataDir is the directory that the next [Process.Start] uses.
func (p *Process) DataDir() string { return p.dir }

// SwapDataDir makes the next [Process.Start] use another directory, and gives the one used until
// now. The process must not be running.
func (p *Process) SwapDataDir(dir string) (old string) {
	if p.running() {
		panic("etcdtest: data directory of a running etcd swapped")
	}
	old, p.dir = p.dir, dir
	return old
}

// Start starts etcd again, on the same ports, after Kill or Stop.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	if p.running() {
		t.Fatal("etcd is already running")
	}
	// Another test's look for free ports may hold one of ours for a moment.
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(50 * time.Millisecond) {
		err := p.start()
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "address already in use") || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Kill ends etcd as a power cut would (SIGKILL) and waits until it is gone. It may be called again.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop ends etcd as an administrator would (SIGTERM) and waits until it is gone.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

func (p *Process) choosePorts() (err error) {
	if p.client, err = freePort(); err == nil {
		p.peer, err = freePort()
	}
	return err
}

func (p *Process) start() error {
	path, err := binary()
	if err != nil {
		return err
	}
	peer := fmt.Sprintf("http://127.0.0.1:%d", p.peer)
	cmd := exec.Command(path, append([]string{
		"--name=default", "--data-dir=" + p.dir,
		"--listen-client-urls=" + p.URL(), "--advertise-client-urls=" + p.URL(),
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		"--unsafe-no-fsync", // what survives is what the kernel was given; a killed process loses nothing of that
		"--log-level=info",
	}, p.args...)...)
	endWithParent(cmd)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	p.cmd, p.exited, p.lastOutput = cmd, make(chan struct{}), new(tail)

	ready := make(chan struct{})
	go func(exited chan<- struct{}, output *tail) {
		defer close(exited)
		once := sync.OnceFunc(func() { close(ready) })
		for lines := bufio.NewReader(stderr); ; {
			line, err := lines.ReadString('\n')
			output.add(line)
			if strings.Contains(line, `"ready to serve client requests"`) {
				once()
			}
			if err != nil {
				break
			}
		}
		_ = cmd.Wait() // how it ended is in its output
	}(p.exited, p.lastOutput)

	select {
	case <-ready:
		return nil
	case <-p.exited:
		return fmt.Errorf("etcd did not start:\n%s", p.lastOutput)
	case <-time.After(startTimeout):
		p.Kill()
		return fmt.Errorf("etcd was not ready after %v:\n%s", startTimeout, p.lastOutput)
	}
}

func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *Process) signal(sig syscall.Signal) {
	if p.running() {
		_ = p.cmd.Process.Signal(sig) // it may just have ended
	}
}

func (p *Process) end(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	p.signal(sig)
	if sig != syscall.SIGKILL {
		p.Resume() // a frozen process hears nothing but SIGKILL
	}
	<-p.exited
}

// A tail remembers the last lines of output, to show when something went wrong.
type tail struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (o *tail) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lines = append(o.lines, line); len(o.lines) > 20 {
		o.lines = o.lines[1:]
	}
}

// String gives the lines.
func (o *tail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "")
}
