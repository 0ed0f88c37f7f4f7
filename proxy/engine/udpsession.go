package engine

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// WhyUnusable is why a session cannot have an endpoint, from the error that it met with. When we are out of
// descriptors, or of local ports, that is not the endpoint's fault, and the next would fare no better; when
// the record is wrong, that is not for how long it takes.
func WhyUnusable(err error) traffic.DropReason {
	switch {
	case IsShortage(err), sockopt.IsOurTrouble(err):
		return traffic.DropDescriptorLimit
	case errors.Is(err, admit.ErrOwnListener):
		return traffic.DropOwnListener
	case errors.Is(err, registry.ErrNotAllowed):
		return traffic.DropNotAllowed
	case errors.Is(err, admit.ErrLoop):
		return traffic.DropLoop
	case errors.Is(err, admit.ErrNoDescriptors):
		return traffic.DropDescriptorLimit
	case errors.Is(err, admit.ErrUnresolved):
		return traffic.DropUnresolved
	}
	return traffic.DropUnreachable
}

// Unserved is why a session ends for which no endpoint was found, from what was wrong with those that were
// tried, and whether one had carried it before.
func Unserved(why traffic.DropReason, carried bool) traffic.Reason {
	switch why {
	case traffic.DropOwnListener:
		return traffic.OwnListener
	case traffic.DropNotAllowed:
		return traffic.EndpointNotAllowed
	case traffic.DropLoop:
		return traffic.Loop
	case traffic.DropUnreachable:
		return traffic.DialFailed
	case traffic.DropUnresolved:
		return traffic.NameFailed
	case traffic.DropDescriptorLimit:
		return traffic.DescriptorLimit
	}
	if carried {
		return traffic.EndpointRemoved
	}
	return traffic.NoEndpoints
}

// TellSession counts a session, which began under a claim, as ended, and tells whoever wants to know.
func TellSession(c *Claim, e traffic.Ending, told func(traffic.Ending)) {
	if v := glog.V(4); v {
		v.Infof("UDP session of %v for %s ended: %d bytes sent, %d received; %s", e.Client, e.Service, e.Sent, e.Received, e.Reason)
	}
	c.Tally.End(e.Reason)
	if told != nil {
		told(e)
	}
}

// SessionEnds tells whether a session that a client began under a claim cannot go on, and why, as things
// stand with its socket and who owns that.
func SessionEnds(closed bool, owner, began *Claim, client netip.Addr) (why traffic.Reason, ends bool) {
	switch {
	case closed && !owner.Lifetime.Over.Load():
		return traffic.Shutdown, true // the port was closed under a service that goes on wanting it
	case closed, owner.Rotation != began.Rotation:
		return traffic.ServiceRemoved, true
	case !owner.keeps(began, client):
		return traffic.SourceNotAllowed, true
	}
	return 0, false
}

// SettleTime is how long an endpoint that never answers has not refused, either, when it counts as
// reached. Not every protocol has answers.
const SettleTime = time.Second

// MaxWaiting bounds how many datagrams of one session wait. It is enough for a client in full flow
// while its session moves, which takes a millisecond, and for one that repeats its question while a
// name is looked up.
const MaxWaiting = 64

// MaxKept bounds what is kept of a datagram until it is answered: one Ethernet frame. Questions are
// shorter. What is longer is part of a stream, and streams can do without one datagram.
const MaxKept = 1500

// UDPReceiveBuffer is what we ask the kernel to hold for a port while the read loop is not
// running. Its usual 208 KiB are gone after two datagrams of full length. The kernel grants as much
// as net.core.rmem_max allows. (Of what 100 known clients sent while 100,000 forged senders did, all
// was answered with 4 MiB, 94 % with 1 MiB, 86 % with 208 KiB; see UDPQueue.)
const UDPReceiveBuffer = 4 << 20

// MaxDatagram is more than a UDP datagram can hold: its length has 16 bits and counts 8 bytes of
// header (RFC 768). One that fills a buffer of this size was cut. v0.4 cut all at 4096 bytes (D41).
const MaxDatagram = 1<<16 - 1

// A DatagramBuffer has room for any datagram.
type DatagramBuffer [MaxDatagram]byte

// DatagramBuffers lends buffers to those who receive a datagram now and then. Any goroutine may use it.
var DatagramBuffers = sync.Pool{New: func() any { return new(DatagramBuffer) }}

// LookUpPatience returns how long a UDP session waits for the name of an endpoint that it was offered. While others are left,
// it tries the next one as soon as TCP would.
func LookUpPatience(c *balance.Choice) time.Duration {
	if c.IsLast() {
		return admit.LookUpTimeout
	}
	return Stagger
}
