// Package process runs other programs for tests, measurements and the chaos run: at ports that are free ([FreePorts]), members of etcd
// among them ([Etcd]), and this program once more in a network of its own ([AgainInOwnNetwork]).
//
// On Unix a [Process] leads a process group of its own: a signal from the terminal does not reach it, and whatever it
// has started ends with it. On Linux the kernel kills it when this program dies without a chance to clean up.
package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Start runs a program with its output going to the file NAME.log in dir. Its standard input is a pipe that no process
// writes to: the end of it tells the program that this one is gone.
func Start(dir, name string, args ...string) (*Process, error) {
	file := filepath.Join(dir, name+".log")
	log, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p, err := Run(name, cmd)
	if err == nil {
		p.Output = file
	}
	return p, err
}

// Run starts a command, which the caller has given its input and output. The caller must not wait for it.
func Run(name string, cmd *exec.Cmd) (*Process, error) {
	group(cmd)
	p := &Process{name: name, cmd: cmd, exited: make(chan struct{})}
	if err := StartTied(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // State reports how it ended
		close(p.exited)
	}()
	return p, nil
}

// Await waits until ready returns true. It fails when the process ends before, or when limit has passed.
func (p *Process) Await(limit time.Duration, ready func() bool) error {
	for deadline := time.Now().Add(limit); ; {
		if ready() {
			return nil
		}
		select {
		case <-p.exited:
			return p.Running()
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %v:\n%s", p.name, limit, p.LastWords())
		}
	}
}

// Said reports whether the output holds some words.
func (p *Process) Said(words string) bool {
	text, err := os.ReadFile(p.Output)
	return err == nil && bytes.Contains(text, []byte(words))
}

// Signal sends a signal to the process and its group, if it still runs.
func (p *Process) Signal(sig syscall.Signal) {
	if p.Running() == nil {
		p.signal(sig)
	}
}

// Stop asks the process to end, frozen or not, and waits until it is gone. After ten seconds it kills it. It may be
// called again, and of a nil process.
func (p *Process) Stop() {
	if p.Running() == nil {
		p.signal(syscall.SIGTERM)
		p.Resume() // a frozen process hears nothing but SIGKILL
		select {
		case <-p.exited:
		case <-time.After(10 * time.Second):
		}
	}
	p.Kill()
}

// Kill ends the process and its group as a power cut would, and waits until it is gone. It may be called again, and of
// a nil process.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	if !p.over.Swap(true) && (p.Running() == nil || !p.isReplaced()) {
		p.signal(syscall.SIGKILL)
	}
	<-p.exited
}

// A Group is processes that end together, and the directory for what they write.
type Group struct {
	Dir  string
	mu   sync.Mutex // guards stop
	stop []func()
}

// Start is the function Start; the process ends with the group.
func (g *Group) Start(name string, args ...string) (*Process, error) {
	p, err := Start(g.Dir, name, args...)
	if err == nil {
		g.OnStop(p.Stop)
	}
	return p, err
}

// OnStop has something done when the group ends.
func (g *Group) OnStop(stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop = append(g.stop, stop)
}

// Stop ends what still runs, the last one first, and removes the directory.
func (g *Group) Stop() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, stop := range slices.Backward(g.stop) {
		stop()
	}
	return os.RemoveAll(g.Dir)
}
