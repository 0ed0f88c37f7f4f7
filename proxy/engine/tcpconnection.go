package engine

import (
	"errors"
	"net"
	"time"
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
