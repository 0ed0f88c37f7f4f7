package fdstore

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/golang/glog"
)

// Watchdog is within which time the service manager wants to hear from us again and again; 0 for never (sd_watchdog_enabled(3)).
func Watchdog() time.Duration {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		glog.Warningf("the service manager's watchdog is not served: %v", err)
		return 0
	}
	return every
}
