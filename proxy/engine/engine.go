package engine

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// An Engine holds sockets open and carries what arrives on them. The Proxier decides which
// sockets there are and who owns each; the engine decides how bytes move. The conformance tests
// hold every engine to the same behaviour.
type Engine interface {
	// Listen opens the socket of one listener: clients may come, and wait in the kernel's queue until it is ready. If the engine itself cannot run, the error is ErrNotStarted. The claim that owner points to when
	// the engine accepts a client, or reads a datagram, gets that client; owner never holds nil while the socket is open. beside are those
	// open sockets of the same port whose addresses the new one has too, or that have its address: the client gets that which
	// names the address.
	Listen(id registry.ListenerID, owner *atomic.Pointer[Claim], beside ...Socket) (Socket, error)

	// Drain waits for the relays and sessions still running, and cuts them when ctx ends. It is called once,
	// after every socket has been closed or drained. When it returns, nothing of the engine is running.
	Drain(ctx context.Context)

	Handover

	// Clients passes the selected connections and sessions of one step to each, and ends those for which it returns true, for the reason
	// [traffic.Killed]. It is called with 0, and then with what it returned the last time, until that is negative. Clients are served
	// between the steps; one that moves between loops meanwhile may be missed, or met twice. The caller keeps its calls apart from a rest.
	Clients(from int64, of *traffic.Selection, each func(*traffic.Client) (end bool)) (next int64)

	// Addresses returns what turns endpoints into addresses to dial, and has the descriptors for that.
	Addresses() *admit.Resolver

	// Limits tells how much is used of what there is only so much of.
	Limits() []traffic.Limit

	// Stalled returns an error that names a loop which stands still, nil if there is none. It waits for nothing.
	Stalled() error

	// TurnTimes returns how long the turns of the loops took.
	TurnTimes() traffic.TurnTimes

	// Paused counts the pauses that accepting made because it failed.
	Paused() uint64
}

// ErrNotStarted is why an engine opens no port at all: what carries clients cannot be made.
var ErrNotStarted = errors.New("the engine cannot start")

// A Handover is how an engine passes on to a successor what it carries, and takes it from a predecessor. The caller keeps calls of
// these methods, of Listen and of Socket apart from one another.
type Handover interface {
	// IsLive reports whether the engine passes on connections and sessions. Otherwise it passes on listeners only: Export yields
	// nothing, and connections go on where they are.
	IsLive() bool

	// Inherit has Listen take the descriptors of a predecessor's listeners where it would open others. The engine owns them.
	Inherit(listeners map[registry.ListenerID]int)

	// Leftover returns what was inherited and not taken. The caller owns it.
	Leftover() map[registry.ListenerID]int

	// Rest has the engine stand still at a safe point, where no byte is on its way within a system call. Until Resume it accepts
	// nobody and moves nothing; Listen and Close work. When ctx ends before it stands still, it goes on, and Rest fails. An engine
	// that is not live may go on with what it carried before.
	Rest(ctx context.Context) error

	// Resume ends a rest. It closes what was inherited and not taken.
	Resume()

	// Lend passes the connections of one step to send, or with sessions true its UDP sessions: those that Export yields without their
	// descriptors afterwards. The engine is not at rest, but what carries these waits for send. It is called with 0, and then with what
	// it returned the last time, until that is negative. If there are none in a step, it does not call send.
	Lend(from int64, sessions bool, send func([]takeover.Item) error) (next int64, err error)

	// Export yields all connections and sessions of an engine at rest, and changes nothing. An item is good until the next one. With
	// afterLending true, Lend has gone through all.
	Export(afterLending bool) iter.Seq2[takeover.Item, error]

	// AdoptTCP and AdoptUDP take over a connection or session while the engine is at rest, and own its descriptors unless they fail:
	// most often because the budget has none left.
	AdoptTCP(r *handover.TCP, at Place, descriptors []int) error
	AdoptUDP(r *handover.UDP, at Place, descriptors []int) error

	// AdoptRest completes a connection that AdoptTCP was given as one that is lent, and AdoptUDPRest a session. GiveBack closes those
	// that have not been completed: they have ended in the predecessor, or a session has moved there.
	AdoptRest(r *handover.Rest) error
	AdoptUDPRest(r *handover.UDPRest) error
	GiveBack()

	// Release closes all connections and sessions of an engine at rest, for another process has them too: no peer notices.
	Release()
}

// A Socket is one open port of an engine.
type Socket interface {
	// Ready waits until the engine serves the clients of the port, and has to be called once before any other method but Descriptor and Close. An
	// error says why it never will; the socket is closed then. Listen does not wait, since thousands of ports are opened at a time.
	Ready() error

	// Descriptor returns the open socket. It stays the engine's.
	Descriptor() (int, error)

	// OwnerChanged has to be called after each change of owner: UDP sessions end that the new owner does not
	// keep. TCP connections being relayed stay.
	OwnerChanged()

	// Drain has the port let no new client in, for the process stops. TCP: as Close. UDP: sessions go on until they are silent for
	// udp.DrainSilence, datagrams of other clients are dropped, and the port is free once its last session has ended.
	Drain()

	// Close frees the port: when it returns another socket can be opened on it, unless another process has the socket too. UDP
	// sessions end; TCP connections being relayed stay.
	Close()
}
