package traffic

import "slices"

// A Reason is why a TCP connection or a UDP session ended, or why a client was turned away before it had either. Every client that
// was accepted ends with exactly one.
type Reason uint8

// The reasons. The first of two ends decides: a client that finishes, and is then answered in full by
// an endpoint that finishes too, is ClientFinished.
const (
	// TCP: both sides have finished.
	ClientFinished Reason = iota
	EndpointFinished

	// TCP: one side failed. Reset: it reset the connection, or accepted no more bytes of the other side. Vanished: it no longer
	// acknowledges anything, and keepalive gave it up.
	ClientReset
	EndpointReset
	ClientVanished
	EndpointVanished

	// Silence: of a TCP connection after one side had finished; of any, where a limit is set, and of a UDP session.
	HalfClosedTimeout
	Idle
	Answered // UDP: all replies have been given that its service expects

	// No endpoint was reached.
	NoEndpoints
	ZeroWeight      // all endpoints have weight 0
	NoLocalEndpoint // the service wants those on the node, and none is there
	AllFailed       // the checks of all fail, and the service wants clients refused then
	DialFailed
	OwnListener        // the remaining endpoints are listeners of this proxy
	EndpointNotAllowed // the remaining endpoints lie outside Config.AllowedEndpoints
	Loop               // UDP: the remaining endpoints would send the client's datagrams back
	NameFailed         // the names of the remaining endpoints were not resolved
	DialLimit          // as many dials as allowed were under way to each endpoint
	EndpointLimit      // each endpoint has as many connections as the service allows one

	// The client was not admitted.
	SourceNotAllowed // by the service's source ranges
	NoProxyHeader    // TCP: it comes by another proxy, and did not say who it is
	ConnectionLimit  // TCP: of connections in all
	ServiceLimit     // TCP: of those of this service
	ClientLimit      // TCP: of those of this client and this service
	DescriptorLimit  // or of local ports

	// The proxy ended it.
	Evicted // UDP: a full limit made room for another client
	EndpointRemoved
	EndpointFailed // its checks do, and the service wants its connections closed
	ServiceRemoved // or the port is another's now
	Killed         // an operator did: the endpoint was disabled, or the client was to end
	Shutdown

	NumReasons // how many there are

	FirstTurnedAway, LastTurnedAway = NoEndpoints, DescriptorLimit // the client was given no endpoint
)

// reasons has the code of each reason, and for some that turn a client away the words in which the log says why. The others depend on
// what the last endpoint answered.
var reasons = [NumReasons]struct{ code, refusal string }{
	ClientFinished:     {"client_finished", ""},
	EndpointFinished:   {"endpoint_finished", ""},
	ClientReset:        {"client_reset", ""},
	EndpointReset:      {"endpoint_reset", ""},
	ClientVanished:     {"client_vanished", ""},
	EndpointVanished:   {"endpoint_vanished", ""},
	HalfClosedTimeout:  {"half_closed_timeout", ""},
	Idle:               {"idle", ""},
	Answered:           {"answered", ""},
	NoEndpoints:        {"no_endpoints", "the service has no endpoints"},
	ZeroWeight:         {"zero_weight", "all endpoints of the service have weight 0, so new clients are refused; give one a weight, or enable one that an operator has drained"},
	NoLocalEndpoint:    {"no_local_endpoint", "the traffic policy of the service is Local, and it has no endpoint on this node (-node_name)"},
	AllFailed:          {"all_failed", "the checks of all endpoints of the service fail, and its record says that clients are refused then (kube-proxy/all-failed)"},
	DialFailed:         {"dial_failed", ""},
	OwnListener:        {"own_listener", ""},
	EndpointNotAllowed: {"endpoint_not_allowed", ""},
	Loop:               {"loop", ""},
	NameFailed:         {"name_failed", ""},
	DialLimit:          {"dial_limit", "as many dials as allowed are under way to each endpoint (-max_dials_per_endpoint)"},
	EndpointLimit:      {"endpoint_limit", "each endpoint of the service has as many connections as its record allows one (kube-proxy/max-connections-per-endpoint)"},
	SourceNotAllowed:   {"source_not_allowed", "its address is outside the source ranges of the service"},
	NoProxyHeader:      {"no_proxy_header", "it comes from a range of -proxy_protocol_from, and must begin with a PROXY header"},
	ConnectionLimit:    {"connection_limit", "the node has as many connections as allowed (-max_connections)"},
	ServiceLimit:       {"service_limit", "the service has as many connections as allowed (kube-proxy/max-connections, or else -max_connections_per_service)"},
	ClientLimit:        {"client_limit", "it has as many connections as the service allows a client (kube-proxy/max-connections-per-client, or else -max_connections_per_client)"},
	DescriptorLimit:    {"descriptor_limit", ""},
	Evicted:            {"evicted", ""},
	EndpointRemoved:    {"endpoint_removed", ""},
	EndpointFailed:     {"endpoint_failed", ""},
	ServiceRemoved:     {"service_removed", ""},
	Killed:             {"killed", ""},
	Shutdown:           {"shutdown", ""},
}

// String gives the reason as logs and metrics spell it: a code that will not change.
func (r Reason) String() string { return reasons[r].code }

// Refusal says in words why a client is turned away, or "" if that depends on what was tried.
func (r Reason) Refusal() string { return reasons[r].refusal }

// ParseReason is the reverse of String; false: there is no such reason.
func ParseReason(s string) (Reason, bool) {
	i := slices.IndexFunc(reasons[:], func(r struct{ code, refusal string }) bool { return r.code == s })
	return Reason(max(i, 0)), i >= 0
}

// Reasons lists all reasons in their order.
func Reasons() []Reason {
	all := make([]Reason, NumReasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}
