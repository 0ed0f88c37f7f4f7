package main

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/golang/glog"
)

// readyWithin is how long the service manager waits for the first state at most. A unit of Type=notify holds up
// every unit that is ordered after it, and multi-user.target, until it says READY=1: without this bound, a node
// whose etcd is away would not finish booting.
const readyWithin = 10 * time.Second

// tellReady says READY=1 when the first state is in force, or when that takes longer than readyWithin.
func tellReady(ctx context.Context, inForce <-chan struct{}, tell func(string)) {
	timer := time.NewTimer(readyWithin)
	defer timer.Stop()
	select {
	case <-inForce:
	case <-timer.C:
		glog.Infof("the first state has been awaited for %v: the service manager waits no longer, and the ports open when it comes", readyWithin)
	case <-ctx.Done():
		return
	}
	tell(daemon.SdNotifyReady)
}

// notify tells the service manager, if there is one that wants to know (sd_notify(3)).
func notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		glog.Warningf("notify the service manager: %v", err)
	}
}
