package engine

import (
	"context"
	"sync/atomic"

	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// An Engine holds sockets open and carries what arrives on them. The Proxier decides which
// sockets there are and who owns each; the engine decides how bytes move. The conformance tests
// hold every engine to the same behaviour.
type Engine interface {
	// Listen opens the socket of one port. Whoever owner points to when a client connects, or when
	// a datagram arrives, gets that client; owner never holds nil while the socket is open.
	Listen(id registry.NodePort, owner *atomic.Pointer[Claim]) (Socket, error)

	// Drain waits for the relays still running, and cuts them when ctx ends. It is called once,
	// after every socket has been closed. When it returns, nothing of the engine is running.
	Drain(ctx context.Context)

	// Limits tells how much is used of what there is only so much of.
	Limits() []traffic.Limit

	// Stalled returns an error that names a loop which stands still, nil if there is none. It waits for nothing.
	Stalled() error

	// TurnTimes returns how long the turns of the loops took.
	TurnTimes() traffic.TurnTimes

	// Paused counts the pauses that accepting made because it failed.
	Paused() uint64
}

// A Socket is one open port of an engine.
type Socket interface {
	// OwnerChanged has to be called after each change of owner: UDP sessions end that the new owner does not
	// keep. TCP connections being relayed stay.
	OwnerChanged()

	// Close frees the port: when it returns another socket can be opened on it. UDP sessions end;
	// TCP connections being relayed stay.
	Close()
}
