package takeover

import (
	"context"
	"iter"
)

// An Item is one thing that the predecessor gives its successor: a listener, a live connection, a number. This package moves
// items, and does not know what they mean.
type Item struct {
	Kind        uint16 // chosen by the package that encodes the body
	Body        []byte
	Descriptors []int // of open sockets; in the sender they are borrowed, the receiver owns copies of them
}

// A Predecessor is the running process, seen by what moves its items.
//
//	Listeners ──▶ Lend, again and again ──▶ Freeze ──▶ Release    the successor serves
//	    └───────────────────┴─────────────────┴──────▶ Thaw       it does not: everything goes on
//
// Each Listeners is followed by one Thaw or one Release. Without a Listeners before it, either does nothing.
type Predecessor interface {
	// Listeners returns the open listeners, and what decides who owns them. The process goes on accepting, but applies no
	// configuration until Thaw. The descriptors stay its own, and open until Thaw or Release.
	Listeners() ([]Item, error)

	// Lend passes some connections on while they go on here, so that less is left to do while traffic stands still; with sessions
	// true, UDP sessions too. It calls send once at most, with descriptors that are good until send returns, and reports whether there
	// is more to lend. One that does not lend may skip it.
	Lend(sessions bool, send func([]Item) error) (more bool, err error)

	// Freeze stops all traffic, and returns the live connections and sessions; of those that were lent, what has changed since. They
	// are read once, by one goroutine.
	Freeze(ctx context.Context) (iter.Seq2[Item, error], error)

	// Thaw lets everything go on, as if nothing had happened.
	Thaw()

	// Release closes every descriptor that was given away. No peer notices: nothing is shut down or reset. Without a Freeze
	// before it, these are the listeners, and connections go on here until they end.
	Release()
}

// A Successor is the process that takes over. It owns the descriptors of the items that it is given, also when it fails.
//
//	AdoptListeners ──▶ its first configuration ──▶ Borrow, again and again ──▶ Adopt ──▶ Serve
type Successor interface {
	// AdoptListeners keeps listeners for the services that the first configuration names. From then on no client is accepted until
	// Serve. With live false it cannot adopt connections of this predecessor, and Adopt must not be called.
	AdoptListeners([]Item) (live bool, err error)

	// Borrow prepares to take over connections that go on in the predecessor. They are known to Adopt, or have ended by then.
	Borrow(iter.Seq2[Item, error]) error

	// Adopt takes over connections and sessions. None of them moves a byte before Serve.
	Adopt(iter.Seq2[Item, error]) error

	// Serve begins to accept clients, and to move bytes. What was borrowed and not adopted is closed.
	Serve()
}
