//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/connlog"
)

// reopenOnSignal has the connection log reopened at each SIGUSR1, until ctx ends. From then on the signal
// is ignored: it comes from a program that rotates logs and does not know that we are about to go.
func reopenOnSignal(ctx context.Context, log *connlog.Log) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	for {
		select {
		case <-signals:
		case <-ctx.Done():
			signal.Ignore(syscall.SIGUSR1)
			return
		}
		if log == nil {
			glog.Info("SIGUSR1: there is no connection log to reopen")
			continue
		}
		log.Reopen()
	}
}
