//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/golang/glog"
)

// Hangups are the signals that have files reopened: SIGHUP, as daemons have it, and SIGUSR1, as nginx has it. Each has its own channel. A signal
// that comes while its channel is full is dropped: one of the same kind stands for it, and none of the other kind.
type hangups struct{ hup, usr1 chan os.Signal }

// onHangup catches these signals. None of them ends the program any more.
func onHangup() hangups {
	h := hangups{make(chan os.Signal, 1), make(chan os.Signal, 1)}
	signal.Notify(h.hup, syscall.SIGHUP)
	signal.Notify(h.usr1, syscall.SIGUSR1)
	return h
}

// handle calls reopen at each of the signals, and then reload at SIGHUP, until ctx ends. From then on they are ignored: they come from a
// program that rotates logs and does not know that this one is about to end.
func (h hangups) handle(ctx context.Context, reopen, reload func()) {
	for {
		var sig os.Signal
		select {
		case sig = <-h.hup:
		case sig = <-h.usr1:
		case <-ctx.Done():
			signal.Ignore(syscall.SIGHUP, syscall.SIGUSR1)
			return
		}
		glog.Infof("%v: reopening logs", sig)
		reopen()
		if sig == syscall.SIGHUP {
			reload()
		}
	}
}
