package health

import "kubeproxy/proxy/traffic"

// A Condition says what new clients of a rotation get. The page, the metrics and the alerts all say it from here, so they agree.
type Condition uint8

// The conditions, the worst first but for Served: see [Condition.Worse]. Those from NoAnswer to OwnListener are what the last clients met, and last
// until another client comes.
const (
	Served      Condition = iota // an endpoint that is well, as far as is known
	NoEndpoints                  // none: there are none
	ZeroWeight                   // none: all have weight 0
	NotAllowed                   // none: no address of one is allowed
	NoAnswer                     // none, most likely: each endpoint failed the last client that was given it, or could not be used
	NameFailed                   // the same: the names of all were not resolved, or they could not be used either
	OwnListener                  // the same: all are listeners of the proxy itself
	AllFailed                    // none: all fail their checks, and the service wants clients refused then
	AllFull                      // none that is well: those that are have as many clients as the service allows an endpoint
	ChecksFail                   // an endpoint that fails its checks, since all fail: the checks may be wrong
	NoLocal                      // none: the service wants those on the node, and none is there. Load balancers are to send clients elsewhere

	NumConditions // how many there are
)

var conditions = [NumConditions]string{
	Served: "served", NoEndpoints: traffic.NoEndpoints.String(), ZeroWeight: traffic.ZeroWeight.String(), NotAllowed: traffic.EndpointNotAllowed.String(), NoLocal: traffic.NoLocalEndpoint.String(),
	AllFull:  traffic.EndpointLimit.String(),
	NoAnswer: traffic.DialFailed.String(), NameFailed: traffic.NameFailed.String(), OwnListener: traffic.OwnListener.String(), AllFailed: traffic.AllFailed.String(), ChecksFail: "checks_fail",
}

// Conditions lists all conditions in their order.
func Conditions() (all []Condition) {
	for c := range NumConditions {
		all = append(all, c)
	}
	return all
}

// Worse returns the worse of two conditions.
func (c Condition) Worse(d Condition) Condition {
	if c == Served || d != Served && d < c {
		return d
	}
	return c
}

// String gives the condition as metrics spell it: by the reason for which clients are turned away, if they are.
func (c Condition) String() string { return conditions[c] }

// TurnsAway reports whether the records, the flags, or the checks give new clients no endpoint.
func (c Condition) TurnsAway() bool {
	return c == NoEndpoints || c == ZeroWeight || c == NotAllowed || c == NoLocal || c == AllFailed
}
