package engine

import (
	"errors"
	"net"
	"time"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
)

// isTimeout tells whether an attempt ended because its time was up.
func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// ErrReachedItself is what an endpoint gets that is only the echo of our own dial.
var ErrReachedItself = errors.New("the connection reached itself")

// KeepAlive has the kernel find out whether a silent peer is still there, and lets it miss three
// probes. (Package net turns on TCP_NODELAY by itself.)
func KeepAlive(cfg Config) net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: cfg.TCPKeepAlive, Interval: cfg.TCPKeepAlive, Count: Probes}
}

// Probes is how many keepalive probes in a row may go unanswered before a peer has vanished.
const Probes = 3

// How long accepting pauses when it fails: at first only for a moment, since most often a client is
// just about to leave.
const (
	FirstPause = 5 * time.Millisecond
	LastPause  = time.Second
)

// SideEnds are the reasons for which one side of a connection can end it.
type SideEnds struct{ Finished, Reset, vanished traffic.Reason }

// Of returns the reason that an error of reading or writing stands for.
func (e SideEnds) Of(err error) traffic.Reason {
	if sockopt.IsReset(err) {
		return e.Reset
	}
	return e.vanished
}

// ClientEnds are the reasons that a client can be.
var ClientEnds = SideEnds{traffic.ClientFinished, traffic.ClientReset, traffic.ClientVanished}

// BackendEnds are the reasons that an endpoint can be.
var BackendEnds = SideEnds{traffic.EndpointFinished, traffic.EndpointReset, traffic.EndpointVanished}

// Undecided stands for the reason of a connection that nothing has ended yet.
const Undecided = -1
