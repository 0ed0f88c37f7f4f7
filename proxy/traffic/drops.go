package traffic

import (
	"sync/atomic"
)

// A DropReason says why a datagram was not carried further. UDP lets us drop; it does not let us
// drop in silence.
type DropReason uint8

// The reasons. Each stands in the table of docs/operating.md, and its words are in dropNames.
const (
	DropNoEndpoints DropReason = iota
	DropOwnListener
	DropNotAllowed
	DropLoop
	DropUnreachable
	DropUnresolved
	DropSource
	DropSessionLimit
	DropServiceLimit
	DropDescriptorLimit
	DropOverload
	DropQueueFull
	DropWaiting
	DropNotSent
	DropTooLong
	DropEnded
	DropClient

	NumDropReasons // how many there are
)

var dropNames = [NumDropReasons]string{
	DropNoEndpoints:     "no endpoints",
	DropOwnListener:     "the only endpoints are listeners of this proxy",
	DropNotAllowed:      "no endpoint is at an address that is allowed (-allowed_endpoints)",
	DropLoop:            "the client is a listener of this proxy, or every endpoint would send its datagrams back",
	DropUnreachable:     "no endpoint reachable",
	DropUnresolved:      "the names of the endpoints were not resolved",
	DropSource:          "the client lies outside the source ranges of the service",
	DropSessionLimit:    "as many UDP sessions are in use as there may be (-max_udp_sessions)",
	DropServiceLimit:    "the service has as many UDP sessions in use as it may (-max_udp_sessions_per_service)",
	DropDescriptorLimit: "out of descriptors or local ports",
	DropOverload:        "more new clients come than can be given sessions (-max_new_udp_sessions)",
	DropQueueFull:       "datagrams come faster than they can be read (a higher net.core.rmem_max lets more of them wait)",
	DropWaiting:         "too many wait for an endpoint",
	DropNotSent:         "send queue full, or dropped by this machine's firewall",
	DropTooLong:         "too long",
	DropEnded:           "session ended or moved",
	DropClient:          "client unreachable",
}

var dropCodes = [NumDropReasons]string{
	DropNoEndpoints:     "no_endpoints",
	DropOwnListener:     "own_listener",
	DropNotAllowed:      "endpoint_not_allowed",
	DropLoop:            "loop",
	DropUnreachable:     "unreachable",
	DropUnresolved:      "name_failed",
	DropSource:          "source_not_allowed",
	DropSessionLimit:    "session_limit",
	DropServiceLimit:    "service_limit",
	DropDescriptorLimit: "descriptor_limit",
	DropOverload:        "overload",
	DropQueueFull:       "queue_full",
	DropWaiting:         "waiting",
	DropNotSent:         "not_sent",
	DropTooLong:         "too_long",
	DropEnded:           "ended",
	DropClient:          "client_unreachable",
}

// String gives the reason in words, as the logs have it.
func (r DropReason) String() string { return dropNames[r] }

// Code gives the reason as metrics spell it: a word that will not change.
func (r DropReason) Code() string { return dropCodes[r] }

// DropReasons lists all reasons in their order.
func DropReasons() []DropReason {
	all := make([]DropReason, NumDropReasons)
	for i := range all {
		all[i] = DropReason(i)
	}
	return all
}

// drops counts the datagrams that were dropped, by reason.
type drops [NumDropReasons]atomic.Uint64
