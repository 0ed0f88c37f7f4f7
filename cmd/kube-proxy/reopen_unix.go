//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/golang/glog"
)

// Hangups are the signals that have files reopened: SIGHUP, as daemons have it, and SIGUSR1, as nginx has it.
type hangups chan os.Signal

// onHangup catches these signals. None of them ends the program any more.
func onHangup() hangups {
	signals := make(hangups, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1)
	return signals
}

// handle calls reopen at each of the signals, and then reload at SIGHUP, until ctx ends. From then on they are ignored: they come from a
// program that rotates logs and does not know that this one is about to end.
func (h hangups) handle(ctx context.Context, reopen, reload func()) {
	for {
		select {
		case sig := <-h:
			glog.Infof("%v: reopening logs", sig)
			reopen()
			if sig == syscall.SIGHUP {
				reload()
			}
		case <-ctx.Done():
			signal.Ignore(syscall.SIGHUP, syscall.SIGUSR1)
			return
		}
	}
}
