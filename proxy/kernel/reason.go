package kernel

// A Reason says why the kernel does not carry a port. The zero value is Off.
type Reason uint8

// The reasons. Carried is none.
const (
	Off Reason = iota // the kernel carries nothing, for a reason that is not the port's
	Carried
	NotOpen       // no service has the port, or its listener is not open
	Terms         // the service wants what the kernel cannot do
	Weights       // an endpoint has another weight than 1
	Overridden    // an endpoint has another weight than 1 for a while, by an operator
	ByFlag        // a flag limits the number of its connections or their silence, has their first bytes read, or has them closed
	NoEndpoints   // there are none, or the checks of all fail
	TooMany       // endpoints
	Address       // an endpoint has a name, is on the node, is link-local, or must not be dialled
	Families      // there are endpoints of IPv4 and of IPv6, or of another one than the address of the port or, for a port of the node, -bind_address
	NotForwarded  // the node does not forward the family of the endpoints
	NotChecked    // an endpoint is not checked
	NotCheckedYet // no check of an endpoint has ended
	Overdue       // the checks of an endpoint are
	Addresses     // it is a port of an address on the loopback, or of one that is link-local
	InDoubt       // the last check of an endpoint failed, or a client did not reach it, or it warms up
	numReasons
)

var reasonCodes = [numReasons]string{"off", "carried", "not-open", "terms", "weights", "override", "flag", "no-endpoints", "too-many-endpoints", "address",
	"family", "not-forwarded", "not-checked", "not-checked-yet", "overdue", "addresses", "in-doubt"}

// String returns the reason as metrics and pages spell it.
func (r Reason) String() string { return reasonCodes[r] }

// Carrier says who carries the clients of a port: the kernel, or userspace, and why.
func (r Reason) Carrier() string {
	switch r {
	case Carried:
		return "kernel"
	case Off:
		return "userspace"
	}
	return "userspace: " + r.String()
}

// Reasons lists all reasons.
func Reasons() []Reason {
	all := make([]Reason, numReasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}
