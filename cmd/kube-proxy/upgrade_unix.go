//go:build unix

package main

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

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/golang/glog"
)

// An upgrade starts the successor of this process, at SIGUSR2, which is nginx's signal for it. The successor asks for everything at
// the socket of -takeover.
type upgrade struct {
	signals chan os.Signal
	path    string // what this process was started from; an upgrade has put another program there
	args    []string
	failed  error // why there is no path
	can     bool  // -takeover is given

	last atomic.Pointer[failedUpgrade] // nil: none since the last signal
}

// A failedUpgrade is one after which this process went on.
type failedUpgrade struct {
	at  time.Time
	err error
}

// failure returns when the upgrade that was asked for last failed, and why; nil: it has not.
func (u *upgrade) failure() (time.Time, error) {
	if f := u.last.Load(); f != nil {
		return f.at, f.err
	}
	return time.Time{}, nil
}

// onUpgrade catches the signal. It does not end the program any more.
func onUpgrade(takeover string) *upgrade {
	u := &upgrade{signals: make(chan os.Signal, 1), args: os.Args, can: takeover != ""}
	signal.Notify(u.signals, syscall.SIGUSR2)
	// Not os.Executable: on Linux that is the file which runs, also when another one has taken its name.
	if u.path, u.failed = exec.LookPath(os.Args[0]); u.failed == nil {
		u.path, u.failed = filepath.Abs(u.path)
	}
	return u
}

// handle starts a successor at each signal, one at a time, until ctx ends.
func (u *upgrade) handle(ctx context.Context, tell func(string)) {
	defer signal.Ignore(syscall.SIGUSR2)
	var running <-chan error // the end of a successor
	for {
		select {
		case <-u.signals:
			if running != nil {
				glog.Warning("SIGUSR2: a successor is being started already")
				continue
			}
			tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec()) // Type=notify-reload wants the time
			var err error
			u.last.Store(nil)
			if running, err = u.start(); err != nil {
				u.last.Store(&failedUpgrade{time.Now(), fmt.Errorf("it was not started: %w", err)})
				glog.Errorf("SIGUSR2: no successor is started: %v; this process goes on", err)
				tell(daemon.SdNotifyReady)
			}
		case err := <-running:
			running = nil
			u.last.Store(&failedUpgrade{time.Now(), fmt.Errorf("it ended: %w", err)})
			glog.Errorf("the successor has ended (%v); this process goes on", err)
			tell(daemon.SdNotifyReady)
		case <-ctx.Done():
			return
		}
	}
}

// standardError is that of the process. The queue of the log takes the place of os.Stderr, and ends with the process.
var standardError = os.Stderr

// start starts a successor. The channel tells how it ended.
func (u *upgrade) start() (ended <-chan error, err error) {
	switch {
	case !u.can:
		return nil, errors.New("-takeover is not given")
	case os.Getpid() == 1:
		return nil, errors.New("this is the first process of a container, which ends with it: start a container beside this one")
	case u.failed != nil:
		return nil, u.failed
	}
	cmd := &exec.Cmd{Path: u.path, Args: u.args, Stdout: os.Stdout, Stderr: standardError,
		// The watchdog of the service manager would wait for this process alone (sd_watchdog_enabled(3)).
		Env: slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WATCHDOG_PID=") })}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	glog.Infof("SIGUSR2: started %s as process %d, to take over", u.path, cmd.Process.Pid)
	done := make(chan error, 1)
	go func() {
		if err := cmd.Wait(); err != nil {
			done <- err
		} else {
			done <- fmt.Errorf("%v", cmd.ProcessState)
		}
	}()
	return done, nil
}
