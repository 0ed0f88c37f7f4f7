//go:build unix

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golang/glog"
)

// An Upgrade starts successors of this process, one at a time. Any goroutine may call its methods.
type Upgrade struct {
	signals chan os.Signal
	path    string // what this process was started from; an upgrade has put another program there
	args    []string
	failed  error // why there is no path
	can     bool  // -takeover is given

	begun  atomic.Bool   // the first state is being applied, or never is, for this process ends
	locked chan struct{} // capacity 1: full while a successor is given everything, has it, or is ended

	last atomic.Pointer[failure] // nil: none since the last signal
}

// A failure is an upgrade after which this process went on.
type failure struct {
	at  time.Time
	err error
}

// A successor is a process that is to take over. The zero value is none.
type successor struct {
	pid   int
	stop  func()           // sends SIGTERM, and SIGKILL after endsWithin
	ended <-chan error     // has how it ended
	late  <-chan time.Time // has the time once it has waited for waitsFor
}

const (
	endsWithin = 5 * time.Second

	// waitsFor is how long the service manager waits for a successor: it takes no reload before the last one is over. That is as long as it waits
	// for the first state of a process that it starts.
	waitsFor = 10 * time.Second
)

// errAnew is why a process ends that serves nothing yet. It has not taken the sockets that the service manager keeps, and only the manager can
// pass them to another process.
var errAnew = errors.New("SIGUSR2: nothing is served yet: this process ends, for the service manager to start the program anew")

// On catches the signal. It does not end the program any more.
func On(takeover string) *Upgrade {
	u := &Upgrade{signals: make(chan os.Signal, 1), args: os.Args, can: takeover != "", locked: make(chan struct{}, 1)}
	signal.Notify(u.signals, syscall.SIGUSR2)
	// Not os.Executable: on Linux that is the file which runs, also when another one has taken its name.
	if u.path, u.failed = exec.LookPath(os.Args[0]); u.failed == nil {
		u.path, u.failed = filepath.Abs(u.path)
	}
	return u
}

// Begin is called before the first state is applied. After an error it must not be: this process ends.
func (u *Upgrade) Begin() error {
	if u.begun.Swap(true) {
		return errAnew
	}
	return nil
}

// Lock is called before a successor is given anything, and Unlock if it does not take over: no successor is ended in between.
func (u *Upgrade) Lock() { u.locked <- struct{}{} }

// Unlock implements [sync.Locker].
func (u *Upgrade) Unlock() { <-u.locked }

// Failure returns when the upgrade that was asked for last failed, and why; nil: it has not.
func (u *Upgrade) Failure() (time.Time, error) {
	if f := u.last.Load(); f != nil {
		return f.at, f.err
	}
	return time.Time{}, nil
}

func (u *Upgrade) fail(err error) { u.last.Store(&failure{time.Now(), err}) }

// Run starts a successor at each signal, until ctx ends. The caller ends ctx once a successor serves, for then this process does not go on. The first
// state is in force once inForce is closed. An error ends this process.
func (u *Upgrade) Run(ctx context.Context, inForce <-chan struct{}, m Manager) error {
	defer signal.Ignore(syscall.SIGUSR2)
	var next successor
	for {
		select {
		case <-u.signals:
			err := u.refusal()
			if err == nil {
				if !u.begun.Swap(true) {
					return errAnew
				}
				select {
				case <-inForce:
				case <-ctx.Done():
					return nil
				}
				if next.pid != 0 && !u.end(ctx, next) {
					return nil
				}
				next = successor{}
			}
			m.Reloading()
			u.last.Store(nil)
			if err == nil {
				next, err = u.start()
			}
			if err != nil {
				u.fail(fmt.Errorf("it was not started: %w", err))
				glog.Errorf("SIGUSR2: no successor is started: %v; this process goes on", err)
				m.GoesOn()
			}
		case err := <-next.ended:
			next = successor{}
			u.fail(fmt.Errorf("it ended: %w", err))
			glog.Errorf("the successor has ended (%v); this process goes on", err)
			m.GoesOn()
		case <-next.late:
			u.fail(fmt.Errorf("process %d still waits after %v: its log says for what", next.pid, waitsFor))
			glog.Warningf("process %d has not taken over within %v, and waits: this process goes on meanwhile", next.pid, waitsFor)
			m.GoesOn()
		case <-ctx.Done():
			return nil
		}
	}
}

// refusal is why no successor can be started.
func (u *Upgrade) refusal() error {
	switch {
	case !u.can:
		return errors.New("-takeover is not given")
	case os.Getpid() == 1:
		return errors.New("this is the first process of a container, which ends with it: start a container beside this one")
	case u.failed != nil:
		return u.failed
	case !u.begun.Load() && os.Getenv("NOTIFY_SOCKET") == "": // nobody would start the program anew
		return errors.New("nothing is served yet: restart this process")
	}
	return nil
}

// end ends a successor that waits. If it is being given everything, it is ended only once that has failed; false: ctx has ended before, as it
// does if that succeeds.
func (u *Upgrade) end(ctx context.Context, next successor) bool {
	select {
	case u.locked <- struct{}{}:
	default:
		glog.Warningf("SIGUSR2: process %d is taking over already: another is started if that fails", next.pid)
		select {
		case u.locked <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	defer u.Unlock()
	glog.Infof("SIGUSR2: ending process %d, which has not taken over, to start another", next.pid)
	next.stop()
	<-next.ended
	return true
}

// standardError is that of the process. The queue of the log takes the place of os.Stderr, and ends with the process.
var standardError = os.Stderr

// start starts a successor.
func (u *Upgrade) start() (next successor, err error) {
	ctx, stop := context.WithCancel(context.Background()) // it outlives this process
	cmd := exec.CommandContext(ctx, u.path)
	cmd.Args, cmd.Stdout, cmd.Stderr = u.args, os.Stdout, standardError
	// The watchdog of the service manager would wait for this process alone (sd_watchdog_enabled(3)).
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WATCHDOG_PID=") })
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, endsWithin
	if err := cmd.Start(); err != nil {
		stop()
		return successor{}, err
	}
	glog.Infof("SIGUSR2: started %s as process %d, to take over", u.path, cmd.Process.Pid)
	ended := make(chan error, 1)
	go func() {
		defer stop()
		if err := cmd.Wait(); err != nil {
			ended <- err
		} else {
			ended <- fmt.Errorf("%v", cmd.ProcessState)
		}
	}()
	return successor{cmd.Process.Pid, stop, ended, time.After(waitsFor)}, nil
}
