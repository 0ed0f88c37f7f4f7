package proxy

import (
	"sync/atomic"
	"time"
)

// A DropReason says why a datagram was not carried further. UDP lets us drop; it does not let us
// drop in silence.
type DropReason uint8

const (
	dropNoEndpoints DropReason = iota
	dropOwnListener
	dropNotAllowed
	dropLoop
	dropUnreachable
	dropUnresolved
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
	dropLoop:            "the client is a listener of this proxy, or every endpoint would send its datagrams back",
	dropUnreachable:     "no endpoint reachable",
	dropUnresolved:      "the names of the endpoints were not resolved",
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
	dropLoop:            "loop",
	dropUnreachable:     "unreachable",
	dropUnresolved:      "name_failed",
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

var start = time.Now()

// sinceStart is a clock that only goes forward, whatever happens to the time of day.
func sinceStart() time.Duration { return time.Since(start) }
