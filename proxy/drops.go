package proxy

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A DropReason says why a datagram was not carried further. UDP lets us drop; it does not let us
// drop in silence.
type DropReason uint8

const (
	dropNoEndpoints DropReason = iota
	dropOwnListener
	dropNotAllowed
	dropUnreachable
	dropSource
	dropSessionLimit
	dropServiceLimit
	dropDescriptorLimit
	dropOverload
	dropQueueFull
	dropWaiting
	dropNotSent
	dropTooLong
	dropEnded
	dropClient

	dropReasons // how many there are
)

var dropNames = [dropReasons]string{
	dropNoEndpoints:     "no endpoints",
	dropOwnListener:     "the only endpoints are listeners of this proxy",
	dropNotAllowed:      "no endpoint is at an address that is allowed (-allowed_endpoints)",
	dropUnreachable:     "no endpoint reachable",
	dropSource:          "the client lies outside the source ranges of the service",
	dropSessionLimit:    "as many UDP sessions are in use as there may be (-max_udp_sessions)",
	dropServiceLimit:    "the service has as many UDP sessions in use as it may (-max_udp_sessions_per_service)",
	dropDescriptorLimit: "out of descriptors or local ports",
	dropOverload:        "more new clients come than can be given sessions (-max_new_udp_sessions)",
	dropQueueFull:       "datagrams come faster than they can be read (a higher net.core.rmem_max lets more of them wait)",
	dropWaiting:         "too many wait for an endpoint",
	dropNotSent:         "send queue full, or dropped by this machine's firewall",
	dropTooLong:         "too long",
	dropEnded:           "session ended or moved",
	dropClient:          "client unreachable",
}

var dropCodes = [dropReasons]string{
	dropNoEndpoints:     "no_endpoints",
	dropOwnListener:     "own_listener",
	dropNotAllowed:      "endpoint_not_allowed",
	dropUnreachable:     "unreachable",
	dropSource:          "source_not_allowed",
	dropSessionLimit:    "session_limit",
	dropServiceLimit:    "service_limit",
	dropDescriptorLimit: "descriptor_limit",
	dropOverload:        "overload",
	dropQueueFull:       "queue_full",
	dropWaiting:         "waiting",
	dropNotSent:         "not_sent",
	dropTooLong:         "too_long",
	dropEnded:           "ended",
	dropClient:          "client_unreachable",
}

// String gives the reason in words, as the logs have it.
func (r DropReason) String() string { return dropNames[r] }

// Code gives the reason as metrics spell it: a word that will not change.
func (r DropReason) Code() string { return dropCodes[r] }

// DropReasons lists all reasons in their order.
func DropReasons() []DropReason {
	all := make([]DropReason, dropReasons)
	for i := range all {
		all[i] = DropReason(i)
	}
	return all
}

// drops counts the datagrams that were dropped, by reason.
type drops [dropReasons]atomic.Uint64

// A dropLog counts drops and, now and then, logs them: those of one socket.
type dropLog [dropReasons]quieter

// drop counts datagrams that are not carried further, for the service that they were meant for, and
// logs it now and then. That a session ended, or moved, while one was on its way is no news.
func (l *dropLog) drop(c *claim, why DropReason, n int, client netip.AddrPort) {
	c.tally.dropped[why].Add(uint64(n))
	if why == dropEnded {
		return
	}
	if events, ok := l[why].ask(n); ok {
		glog.Warningf("%s: datagram of %v dropped (%d since such a line): %s", c.key, client, events, why)
	}
}

// reportUnusable logs, now and then, that an endpoint cannot be used at all: a record has to be mended. It is
// not yet a drop, for there may be other endpoints.
func (l *dropLog) reportUnusable(service registry.PortKey, e *endpoint, why DropReason, err error) {
	if _, ok := l[why].ask(0); ok {
		glog.Errorf("%s: endpoint %v is not used: %v", service, e.addr, err)
	}
}

// A quieter lets the first of many like events be logged at once, and after that one line in
// quietFor, which tells how many there have been since the line before. The zero value is ready.
type quieter struct {
	next  atomic.Int64 // by the clock of sinceStart
	since atomic.Int64 // events since the last line
}

const quietFor = time.Minute

// ask counts n events, and tells whether to log a line now, and for how many events it stands.
func (q *quieter) ask(n int) (events int64, ok bool) {
	q.since.Add(int64(n))
	now, next := int64(sinceStart()), q.next.Load()
	if now < next || !q.next.CompareAndSwap(next, now+int64(quietFor)) {
		return 0, false
	}
	return q.since.Swap(0), true
}

var start = time.Now()

// sinceStart is a clock that only goes forward, whatever happens to the time of day.
func sinceStart() time.Duration { return time.Since(start) }
