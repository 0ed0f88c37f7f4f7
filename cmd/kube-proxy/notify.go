package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/golang/glog"
)

// readyWithin is how long the service manager waits for the first state at most. A unit of Type=notify holds up
// every unit that is ordered after it, and multi-user.target, until it says READY=1: without this bound, a node
// whose etcd is away would not finish booting.
const readyWithin = 10 * time.Second

// tellReady says READY=1 when the first state is in force, or when that takes longer than readyWithin. A process with a predecessor says
// nothing before: the manager takes each message for one of the service.
func tellReady(ctx context.Context, inForce <-chan struct{}, hasPredecessor bool, tell func(string)) {
	var late <-chan time.Time
	if !hasPredecessor {
		late = time.After(readyWithin)
	}
	select {
	case <-inForce:
	case <-late:
		glog.Infof("the first state has been awaited for %v: the service manager waits no longer, and the ports open when it comes", readyWithin)
	case <-ctx.Done():
		return
	}
	tell(daemon.SdNotifyReady)
}

// A speaker tells the service manager what becomes of this process while it serves.
type speaker struct {
	status atomic.Value // the message with the last line of progress
}

// progress says in one line what the process does.
func (s *speaker) progress(line string) {
	status := "STATUS=" + strings.Join(strings.Fields(line), " ")
	s.status.Store(status)
	notify(status)
}

// Reloading implements [upgrade.Manager]. Type=notify-reload wants the time.
func (s *speaker) Reloading() {
	notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// GoesOn implements [upgrade.Manager]. A successor of an earlier release has said what it was waiting for, so the status is said again.
func (s *speaker) GoesOn() {
	status, _ := s.status.Load().(string) // there is none at the very first
	notify(strings.TrimSpace(daemon.SdNotifyReady + "\n" + status))
}

// notify tells the service manager, if there is one that wants to know (sd_notify(3)).
func notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		glog.Warningf("notify the service manager: %v", err)
	}
}
