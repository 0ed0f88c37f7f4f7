package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// TestTheServiceManagerWaitsForTheFirstStateButNotLong: else a node whose etcd is away would not finish booting.
func TestTheServiceManagerWaitsForTheFirstStateButNotLong(t *testing.T) {
	for _, tt := range []struct {
		name           string
		after          time.Duration // until the first state is in force; 0: never
		hasPredecessor bool
		want           time.Duration // until READY=1
	}{
		{"at once", time.Millisecond, false, time.Millisecond},
		{"in time", readyWithin - time.Second, false, readyWithin - time.Second},
		{"too late", readyWithin + time.Hour, false, readyWithin},
		{"never", 0, false, readyWithin},
		{"while another process serves", readyWithin + time.Hour, true, readyWithin + time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inForce := make(chan struct{})
				if tt.after > 0 {
					time.AfterFunc(tt.after, func() { close(inForce) })
				}
				start := time.Now()
				var said []string
				tellReady(t.Context(), inForce, tt.hasPredecessor, func(state string) { said = append(said, state) })
				if took := time.Since(start); len(said) != 1 || said[0] != daemon.SdNotifyReady || took != tt.want {
					t.Errorf("said %q after %v; want %s after %v", said, took, daemon.SdNotifyReady, tt.want)
				}
			})
		})
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	tellReady(stopped, nil, false, func(state string) { t.Errorf("stopped before it was ready, and said %q", state) })
}
