package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"kubeproxy/registry"
)

// A portID names what can be listened on: one port number of one protocol.
type portID struct {
	protocol registry.Protocol
	number   uint16
}

// A claim is the wish of one port of one service to own a listener, and what its traffic needs: the
// rotation of its endpoints, and on what terms clients are let in. To an engine a claim never changes;
// a listener changes hands, and a service its terms, by swapping a pointer to one. A claim that only
// renews the terms has the rotation, the tally and the tenure of the one before.
type claim struct {
	key      registry.PortKey
	rank     int   // of the source that the service is from
	since    int64 // the revision from which on the service is known to claim the port
	rotation *rotation
	tally    *tally
	tenure   *tenure // on the port
	waited   bool    // it was made known that the port is another's; the Proxier's, guarded by its mu

	before, after *claim // on the same port; as waited

	sources  []netip.Prefix // who may connect; none: anybody
	affinity time.Duration  // how long a client is remembered; 0: not at all
}

// same tells whether two claims of a service on a port differ in nothing that its traffic could notice.
func (c *claim) same(d *claim) bool {
	return c.key == d.key && slices.Equal(c.sources, d.sources) && c.affinity == d.affinity
}

// allows tells whether a client may connect.
func (c *claim) allows(client netip.Addr) bool {
	return len(c.sources) == 0 || contains(c.sources, client)
}

// keeps tells whether a UDP session of a client, begun under previous, goes on now that c owns the port: it does
// if c only renews the terms, and they still let the client in.
func (c *claim) keeps(previous *claim, client netip.Addr) bool {
	return c.rotation == previous.rotation && c.allows(client)
}

// contains tells whether an address lies in one of the prefixes, which hold IPv4 addresses as such.
func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// An engine holds sockets open and carries what arrives on them. The [Proxier] decides which
// sockets there are and who owns each; the engine decides how bytes move. The conformance tests
// hold every engine to the same behaviour.
type engine interface {
	// listen opens the socket of one port. Whoever owner points to when a client connects, or when
	// a datagram arrives, gets that client; owner never holds nil while the socket is open.
	listen(id portID, owner *atomic.Pointer[claim]) (socket, error)

	// drain waits for the relays still running, and cuts them when ctx ends. It is called once,
	// after every socket has been closed. When it returns, nothing of the engine is running.
	drain(ctx context.Context)

	// limits tells how much is used of what there is only so much of.
	limits() []Limit

	// stalled returns an error that names a loop which stands still, nil if there is none. It waits for nothing.
	stalled() error

	// turnTimes returns how long the turns of the loops took.
	turnTimes() TurnTimes

	// paused counts the pauses that accepting made because it failed.
	paused() uint64
}

// A Kind says which engine carries the bytes.
type Kind uint8

// The engines.
const (
	Auto     Kind = iota // the best one for this system
	Epoll                // Linux: event loops over bare sockets
	Portable             // plain Go, everywhere
)

// String gives the kind as the flag -engine spells it.
func (k Kind) String() string { return kindNames[k] }

// ParseKind is the reverse of String.
func ParseKind(s string) (Kind, error) {
	if i := slices.Index(kindNames[:], s); i >= 0 {
		return Kind(i), nil
	}
	return Auto, fmt.Errorf("no such engine; there are %s", strings.Join(kindNames[:], ", "))
}

var kindNames = [...]string{Auto: "auto", Epoll: "epoll", Portable: "portable"}

// A socket is one open port of an engine.
type socket interface {
	// ownerChanged has to be called after each change of owner: UDP sessions end that the new owner does not
	// keep. TCP connections being relayed stay.
	ownerChanged()

	// close frees the port: when it returns another socket can be opened on it. UDP sessions end;
	// TCP connections being relayed stay.
	close()
}
