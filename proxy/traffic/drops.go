package traffic

import (
	"sync/atomic"
)

// A DropReason is why a datagram was not carried further. The proxy counts every datagram that it drops.
type DropReason uint8

// The reasons. Each is described in docs/metrics.md.
const (
	DropNoEndpoints DropReason = iota
	DropZeroWeight
	DropNoLocalEndpoint
	DropAllFailed
	DropOwnListener
	DropNotAllowed
	DropLoop
	DropUnreachable
	DropUnresolved
	DropSource
	DropSessionLimit
	DropServiceLimit
	DropClientLimit
	DropEndpointLimit
	DropDescriptorLimit
	DropOverload
	DropQueueFull
	DropWaiting
	DropNotSent
	DropTooLong
	DropEnded
	DropClient
	DropShutdown

	NumDropReasons // how many there are
)

// dropReasons has the code of each reason, and the words in which logs say it.
var dropReasons = [NumDropReasons]struct{ code, text string }{
	DropNoEndpoints:     {"no_endpoints", "no endpoints"},
	DropZeroWeight:      {"zero_weight", "all endpoints of the service have weight 0, so new clients are refused; give one a weight, or enable one that an operator has drained"},
	DropAllFailed:       {"all_failed", "the checks of all endpoints of the service fail, and its record says that clients are refused then (kube-proxy/all-failed)"},
	DropNoLocalEndpoint: {"no_local_endpoint", "the traffic policy of the service is Local, and it has no endpoint on this node (-node_name)"},
	DropOwnListener:     {"own_listener", "the only endpoints are listeners of this proxy"},
	DropNotAllowed:      {"endpoint_not_allowed", "no endpoint is at an address that is allowed (-allowed_endpoints)"},
	DropLoop:            {"loop", "the client is a listener of this proxy, or every endpoint would send its datagrams back"},
	DropUnreachable:     {"unreachable", "no endpoint reachable"},
	DropUnresolved:      {"name_failed", "the names of the endpoints were not resolved"},
	DropSource:          {"source_not_allowed", "the client is outside the source ranges of the service"},
	DropSessionLimit:    {"session_limit", "the node has as many UDP sessions as allowed (-max_udp_sessions)"},
	DropServiceLimit:    {"service_limit", "the service has as many UDP sessions as allowed (kube-proxy/max-connections, or else -max_udp_sessions_per_service)"},
	DropClientLimit:     {"client_limit", "the client has as many UDP sessions as the service allows one (kube-proxy/max-connections-per-client, or else -max_connections_per_client)"},
	DropEndpointLimit:   {"endpoint_limit", "each endpoint has as many UDP sessions as the service allows one (kube-proxy/max-connections-per-endpoint)"},
	DropDescriptorLimit: {"descriptor_limit", "out of descriptors or local ports"},
	DropOverload:        {"overload", "more new clients come than may begin sessions (-max_new_udp_sessions)"},
	DropQueueFull:       {"queue_full", "datagrams arrive faster than they are read (a higher net.core.rmem_max lets more of them wait)"},
	DropWaiting:         {"waiting", "too many wait for an endpoint"},
	DropNotSent:         {"not_sent", "send queue full, or dropped by this machine's firewall"},
	DropTooLong:         {"too_long", "too long"},
	DropEnded:           {"ended", "session ended or moved"},
	DropClient:          {"client_unreachable", "client unreachable"},
	DropShutdown:        {"shutdown", "the proxy was told to stop, and lets no new client in"},
}

// String gives the reason in words, as the logs have it.
func (r DropReason) String() string { return dropReasons[r].text }

// Code gives the reason as metrics spell it: a code that will not change.
func (r DropReason) Code() string { return dropReasons[r].code }

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
