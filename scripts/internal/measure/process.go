//go:build linux

package measure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Process is one that we started. It is the leader of a process group of its own, so that a
// signal from the terminal is ours alone, and the workers of nginx end with their master.
type Process struct {
	name   string
	Output string // the file that its output goes to
	cmd    *exec.Cmd
	exited chan struct{} // closed once it is gone
	over   atomic.Bool   // it was killed
}

// Start runs a command with its output going to a file in dir.
func Start(dir, name string, args ...string) (*Process, error) {
	p := &Process{name: name, Output: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	log, err := os.Create(p.Output)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Should we be killed without a chance to clean up, the kernel kills it (though not what it has
	// started: the workers of nginx would go on).
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A pipe that nobody writes to: its end tells the backends that we are gone.
	if _, err := p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its output
		close(p.exited)
	}()
	return p, nil
}

// PID gives its id, which is also that of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Await waits until ready says so; it fails when the process ends before, or takes too long.
func (p *Process) Await(limit time.Duration, ready func() bool) error {
	for deadline := time.Now().Add(limit); ; {
		if ready() {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended early:\n%s", p.name, p.lastWords())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %v:\n%s", p.name, limit, p.lastWords())
		}
	}
}

// Running returns nil while the process runs, and then its last words.
func (p *Process) Running() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s has ended:\n%s", p.name, p.lastWords())
	default:
		return nil
	}
}

// lastWords gives the end of the output.
func (p *Process) lastWords() string {
	text, _ := os.ReadFile(p.Output) // without it there is just nothing to show
	return string(text[max(0, len(text)-2000):])
}

// Said tells whether the output holds some words.
func (p *Process) Said(words string) bool {
	text, err := os.ReadFile(p.Output)
	return err == nil && bytes.Contains(text, []byte(words))
}

// Stop ends the process and its group, asking first, and waits until it is gone. It may be called again.
func (p *Process) Stop() {
	select {
	case <-p.exited:
	default:
		p.signal(syscall.SIGTERM)
	}
	select {
	case <-p.exited:
	case <-time.After(3 * time.Second):
	}
	p.Kill()
}

// Kill ends the process and its group as a power cut would, and waits until it is gone. It may be called again.
func (p *Process) Kill() {
	if p.over.Swap(true) {
		<-p.exited
		return // the number of the group may be another's by now
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// signal reaches the whole group, if there is still one.
func (p *Process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.PID(), sig) }

// Processes is everything that we started, and the directory for what it writes.
type Processes struct {
	Dir string
	mu  sync.Mutex // guards all
	all []*Process
}

// Start is the function Start; the process ends with the others.
func (ps *Processes) Start(name string, args ...string) (*Process, error) {
	p, err := Start(ps.Dir, name, args...)
	if err == nil {
		ps.mu.Lock()
		ps.all = append(ps.all, p)
		ps.mu.Unlock()
	}
	return p, err
}

// Stop ends what still runs, the last one first, and removes the directory.
func (ps *Processes) Stop() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i := len(ps.all) - 1; i >= 0; i-- {
		ps.all[i].Stop()
	}
	return os.RemoveAll(ps.Dir)
}

// RaiseDescriptorLimit gives us and what we start all the descriptors that we may have, and says how
// many those are.
func RaiseDescriptorLimit() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, errors.Join(errors.New("raise the limit of descriptors"), err)
	}
	return int(min(limit.Cur, 1<<20)), nil
}
