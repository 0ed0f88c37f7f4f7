package proxy

import (
	"context"
	"sync/atomic"

	"kubeproxy/registry"
)

// A portID names what can be listened on: one port number of one protocol.
type portID struct {
	protocol registry.Protocol
	number   uint16
}

// A claim is the wish of one port of one service to own a listener, and what its traffic needs: the
// rotation of its endpoints. To an engine a claim never changes; a listener changes hands by swapping a pointer
// to one.
type claim struct {
	key      registry.PortKey
	created  int64
	rotation *rotation
	tally    *tally
	waited   bool // it was made known that the port is another's; the Proxier's, guarded by its mu
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
}

// A socket is one open port of an engine.
type socket interface {
	// disown tells that owner no longer points to previous: UDP sessions that began under it end.
	// TCP connections being relayed stay.
	disown(previous *claim)

	// close frees the port: when it returns another socket can be opened on it. UDP sessions end;
	// TCP connections being relayed stay.
	close()
}
