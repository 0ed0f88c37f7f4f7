// Package takeover moves what a process serves to its successor, so that clients do not notice an upgrade. It carries [Item] values between
// two processes, and does not know what they mean.
//
//	predecessor                                    successor
//	Listen, Run                                    Take
//	      ◀── hello ─────────────────────────────────
//	      ── offer: open descriptors ───────────────▶   declines if its limit is lower
//	      ◀── accept ────────────────────────────────
//	Listeners ── items, end ────────────────────────▶   AdoptListeners, the first configuration
//	      ◀── opened ────────────────────────────────
//	Lend   ── items, end ───────────────────────────▶   Borrow       as often as there is something to lend, while
//	      ◀── taken ─────────────────────────────────                traffic goes on; an end without items is the last
//	Freeze ── items, end ───────────────────────────▶   Adopt
//	      ◀── serving: the word ─────────────────────   Serve
//	Release ── last items, end ─────────────────────▶
//	      ◀── end of file ───────────────────────────
//
// # Who serves
//
// Up to the word the predecessor owns everything. An error, a peer that is silent for too long, and the end of either process have
// it thaw, and nothing was lost: the successor has read nothing from any descriptor. The word is one message. If the predecessor has
// given up before, sending it fails, and the successor must not serve. The kernel decides which of the two came first: to give up,
// the predecessor shuts down its end for reading, and then looks once more for the word among the messages that had arrived. It says that it
// has given up before it thaws, so a successor that finds an end of file, and no such message, knows that nothing has moved since the freeze.
//
// A predecessor that is told to stop listens at the path no more, and drains. If it is told so before a successor has said hello, it closes
// the connection without a word; the successor asks again, finds nobody, and begins alone. A conversation that has begun goes on to its end,
// for a few seconds at most.
//
// A successor whose conversation ends before the offer asks at the path again: another successor was first, and serves there by now. A
// successor that finds the conversation broken later, without a refusal, asks at the same path whether the predecessor still lives. If it does, or
// has refused, Take returns an error, and the successor has to end. If not, the successor serves with all that it was given completely.
//
// Of several processes that find nobody at the path, one begins, and the others take over from it: see [Take]. The right to begin is a lock on a file
// beside the socket, which a process has until it listens. Who has waited for it in vain begins, too: better two processes serve than none. A release
// before this one does not ask for it.
//
// # Lending
//
// Most of the work of taking a connection or a session over is the kernel's, for its sockets. It is done while it still goes on in the
// predecessor: Lend passes it on, and after the freeze follows only what has changed. To lend connections is a feature of both processes, which a
// hello and its offer name, and to lend sessions is another. What a release before them does not name follows whole after the freeze.
//
// # The wire
//
// The socket is a UNIX one of type SOCK_SEQPACKET. A frame is one message: a byte for its type, and a payload of at most 64 KiB. Items are a
// stream of bytes that frames cut anywhere. Their descriptors come along with the frames, at most 253 in each (SCM_MAX_FD), before the
// last byte of their item. The end has the number of items and of descriptors, and a CRC-32C of the stream. The receiver counts, for the
// kernel drops descriptors that exceed RLIMIT_NOFILE of the receiver without an error (unix(7)).
//
// Each side believes only a peer of its own user or root (SO_PEERCRED). What it keeps for a peer is bounded, and each step has a deadline.
package takeover
