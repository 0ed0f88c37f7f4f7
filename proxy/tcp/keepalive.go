package tcp

import (
	"errors"
	"net"
	"time"

	"kubeproxy/proxy/sockopt"
)

// KeepAlive has the kernel send probes to a silent peer, one in each period, and lets it miss three. (Package net turns on
// TCP_NODELAY by itself.)
func KeepAlive(period time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: period, Interval: period, Count: Probes}
}

// Probes is how many keepalive probes in a row may go unanswered before a peer has vanished.
const Probes = 3

// ErrVanished is how a side ends that HasVanished.
var ErrVanished = errors.New("the peer no longer answers")

// HasVanished reports whether a peer no longer answers, of which the kernel tells d. Keepalive cannot find out while we have
// sent something that the peer has not acknowledged: then the kernel sends that again, instead of probes, for a quarter of an
// hour (tcp_retries2, tcp(7)). TCP_USER_TIMEOUT would be shorter, but would also end a peer that is well and just reads
// nothing for a while.
func HasVanished(d sockopt.Delivery, period time.Duration) bool {
	return d.Pending && d.Unanswered >= Probes && d.Silent >= LookAfter(period)
}

// IdleLook is how often a connection has to be looked at that ends after some silence: it lasts so much longer at most.
func IdleLook(timeout time.Duration) time.Duration { return max(timeout/8, time.Millisecond) }

// LookAfter is how often a connection has to be looked at for HasVanished: as long as keepalive takes to find out.
func LookAfter(period time.Duration) time.Duration { return (1 + Probes) * period }
