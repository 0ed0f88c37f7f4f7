package traffic

import "slices"

// A Reason says why a TCP connection or a UDP session ended, or why a client was turned away before it
// had either. Every client that was accepted ends with exactly one.
type Reason uint8

// The reasons. The first of two ends decides: a client that finishes, and is then answered in full by
// an endpoint that finishes too, is ClientFinished.
const (
	// TCP: both sides have said all they wanted to.
	ClientFinished Reason = iota
	EndpointFinished

	// TCP: one side broke off. Reset: it reset the connection, or took no more of what the other side
	// went on to say. Vanished: it no longer acknowledges anything, and keepalive gave it up.
	ClientReset
	EndpointReset
	ClientVanished
	EndpointVanished

	// Silence: of a TCP connection of which one side had finished, of a UDP session.
	HalfClosedTimeout
	Idle

	// No endpoint was reached.
	NoEndpoints
	DialFailed
	OwnListener        // all that is left to try are listeners of this proxy
	EndpointNotAllowed // all that is left to try lie outside Config.AllowedEndpoints
	Loop               // UDP: all that is left to try would send the client's datagrams back
	NameFailed         // the names of all that is left to try were not resolved
	DialLimit          // as many dials as may be were under way to each endpoint

	// The client was not let in.
	SourceNotAllowed // by the service's source ranges
	ConnectionLimit  // TCP: of connections in all
	ServiceLimit     // TCP: of those of this service
	DescriptorLimit  // or of local ports

	// It was ended from here.
	Evicted // UDP: another client needed the room more
	EndpointRemoved
	ServiceRemoved // or the port is another's now
	Shutdown

	NumReasons // how many there are

	FirstTurnedAway, LastTurnedAway = NoEndpoints, DescriptorLimit // the client was given no endpoint
)

var reasonNames = [NumReasons]string{
	ClientFinished:     "client_finished",
	EndpointFinished:   "endpoint_finished",
	ClientReset:        "client_reset",
	EndpointReset:      "endpoint_reset",
	ClientVanished:     "client_vanished",
	EndpointVanished:   "endpoint_vanished",
	HalfClosedTimeout:  "half_closed_timeout",
	Idle:               "idle",
	NoEndpoints:        "no_endpoints",
	DialFailed:         "dial_failed",
	OwnListener:        "own_listener",
	EndpointNotAllowed: "endpoint_not_allowed",
	Loop:               "loop",
	NameFailed:         "name_failed",
	DialLimit:          "dial_limit",
	SourceNotAllowed:   "source_not_allowed",
	ConnectionLimit:    "connection_limit",
	ServiceLimit:       "service_limit",
	DescriptorLimit:    "descriptor_limit",
	Evicted:            "evicted",
	EndpointRemoved:    "endpoint_removed",
	ServiceRemoved:     "service_removed",
	Shutdown:           "shutdown",
}

// String gives the reason as logs and metrics spell it: a word that will not change.
func (r Reason) String() string { return reasonNames[r] }

// ParseReason is the reverse of String; false: there is no such reason.
func ParseReason(s string) (Reason, bool) {
	i := slices.Index(reasonNames[:], s)
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
