// Package config gathers what is wanted, from wherever it is written down, and tells whoever can
// make it so.
//
//	source "static" ─Update─▶ ┐                         ┌▶ queue ─Batch─▶ proxier
//	                          ├ Mux ──▶ store ─outcome─▶┤
//	source "etcd"  ─Update──▶ ┘         layers          └▶ queue ─Batch─▶ another handler
//	                                    └─── Broadcaster ───┘
//
// A source knows one place where services and endpoints are written, such as an etcd. Each is
// a [Source], and lives in a package of its own below this one. Package records keeps what all of them need to remember.
// What they send, a [registry.Update], is one step: either a SET, which is all
// that the source has to say, or plain changes to what it said before.
//
// # Where sources meet
//
// The store keeps what each source says in a layer of its own, and the layers lie on top of each
// other in the order of the calls of [Mux.Channel]. Looking down on them from above shows the
// merged state:
//
//	          web   db    dns
//	static          db₁               the first call: on top
//	etcd      web₂  db₂   dns₂        db₂ waits in the shadow of db₁
//	          ─────────────────
//	merged    web₂  db₁   dns₂
//
// So an object, which is one kind and one name, belongs to the earliest source that names it. When
// that source lets go of it, the next one below comes to light; nothing is lost meanwhile, and no
// map's random order decides (D28). An update costs as much as it has changes, however much there
// is besides: a SET is compared with the layer of its source, and only what differs goes on.
//
// Two sources may also claim one port by services of two names. Their revisions cannot be compared, so the store gives
// each service the rank of its source: claims of an earlier source come first, and within a source the older claim.
//
// # How handlers are told
//
// Each call of [Broadcaster.Add] makes one queue. A queue does not hold the history of changes, but
// the difference between the merged state and what its handlers were last given. As long as they
// are busy, newer values take the place of older ones. When they are done, they get the whole
// difference as one [registry.Batch]. What was undone in the meantime is no difference: an object that
// came and went while a handler was busy is never heard of there.
//
// What handlers were given is not kept: of an object that is not in the difference, the merged state
// says it. Each change there says what was before it, too. So the one that brings an object into the
// difference tells what the handlers know of it, and that is noted until they are given the new value.
//
// That is all that is needed for a slow handler to delay nobody else (in v0.4 it held up the watch,
// D27) and for the queue to stay bounded: it never holds more than one entry for each object.
//
// # Promises
//
//   - An update is applied as a whole. What each handler has been told, taken together, is after
//     every batch equal to the merged state after some whole update, and never to one between two.
//   - Nothing is delivered until every source has sent its first SET, or has been silent for 3 s since another one did.
//     The first batch holds everything, and is delivered even if that is nothing at all: then the handlers know that the
//     state is complete. An empty registry is a state like any other (D9).
//   - A queue that is added late gets the whole state as its first batch, and never misses a
//     change (D8). When each object was received is not kept, so the first batch of any queue says
//     that it is as old as the oldest change of all.
//   - After the first, a batch holds only what differs from what its handlers were given before. When
//     nothing differs, there is no batch.
//   - A handler is never called concurrently with itself, and the handlers of one queue get each
//     batch in the order in which they were added.
//   - Memory is bounded by the largest number of objects there was at one time, never by the
//     number of changes.
//   - When [Mux.Run] has returned, nothing of this package is running.
//
// What is decided about each object is logged at V(3), each update received at V(4).
package config
