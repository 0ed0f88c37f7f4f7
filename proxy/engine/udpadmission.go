package engine

import (
	"golang.org/x/time/rate"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/traffic"
)

// MayBegin reports whether a client may begin a session with the owner of its port, and takes a descriptor for it if so.
// Otherwise it drops the client's datagram, for one of many good reasons. What costs least is asked first: isCrowded, whether
// the port's receive queue is more than half full, may cost a system call, and pace is the token bucket of the port.
//
// A client that is given no session has no ending either, only a dropped datagram. A TCP client has been accepted, and is
// owed a line of its own. A datagram comes unasked, and who forges a million senders is not to have a million lines written.
func (c *Base) MayBegin(owner *Claim, key admit.SessionKey, isCrowded func() bool, pace *rate.Limiter) bool {
	why, refused := traffic.DropReason(0), true
	switch {
	case !owner.Allows(key.Client.Addr()):
		why = traffic.DropSource
	case owner.Rotation.IsEmpty(): // nobody is evicted for this
		why = traffic.DropNoEndpoints
	case isCrowded(), c.Sessions.LagsBehind(), !pace.Allow(), !c.Newcomers.Allow():
		why = traffic.DropOverload
	case c.Resolver.Own.OwnsClient(key):
		why = traffic.DropLoop
	case !c.Budget.TryAcquire(1):
		why = traffic.DropDescriptorLimit
	default:
		refused = false
	}
	if refused {
		c.Lines.Drop(owner, why, 1, key.Client)
	}
	return !refused
}
