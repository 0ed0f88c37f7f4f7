// Package config merges what sources report, and passes the changes on to handlers.
//
//	source "etcd"  ─Update──▶ ┐                         ┌▶ queue ─Batch─▶ Proxier
//	                          ├ Mux ──▶ store ─outcome─▶┤
//	source "files" ─Update──▶ ┘         layers          └▶ queue ─Batch─▶ another handler
//	                                    └─── Broadcaster ───┘
//
// A source reads one place where services and endpoints are written, such as an etcd. Each is a [Source] in a package of its own
// below this one. Package records keeps the state that all sources need. A source sends [registry.Update] values. Each is one step:
// either a SET, the complete state of the source, or changes to what the source sent before.
//
// # Where sources meet
//
// The store keeps one layer for each source, in the order of the calls of [Mux.Channel]. The merged state is the view from the top:
//
//	          web   db    dns
//	etcd            db₁               the first call: on top
//	files     web₂  db₂   dns₂        db₂ is hidden by db₁
//	          ─────────────────
//	merged    web₂  db₁   dns₂
//
// An object is one kind and one name. It belongs to the earliest source that names it. When that source drops it, the object of
// the next source takes effect, without a moment between the two; the order of sources decides, and no map's random order (D28). The
// cost of an update depends on its changes only: a SET is compared with the layer of its source, and only differences go on.
//
// Two services with different names may claim one port from two sources. Revisions of two sources cannot be compared, so the store
// marks each service with the rank of its source. Claims of an earlier source come first. Within a source the older claim comes first.
//
// # How handlers are told
//
// Each call of [Broadcaster.Add] makes one queue. A queue holds no history. It holds the difference between the merged state and what
// its handlers received last. While the handlers are busy, newer values replace older ones. When they are ready, they receive the
// whole difference as one [registry.Batch]. An object that came and went in the meantime is no difference, so they never see it.
//
// The queue does not keep what the handlers received. For an object outside the difference, that is the value in the merged state.
// When a change adds an object to the difference, the change contains the value before it: that is the value that the handlers have, and
// the queue notes it until they receive the new one.
//
// So a slow handler delays no other handler (in v0.4 it held up the watch, D27), and a queue holds at most one entry for each object.
//
// # Promises
//
//   - An update is applied as a whole. After each batch, what a handler has received equals the merged state after some whole update,
//     never a state between two.
//   - Nothing is delivered until every source has sent its first SET, or has been silent for 3 s since another one did. The first
//     batch holds everything. It is delivered even if it is empty: then the handlers know that the state is complete. An empty
//     registry is a state like any other (D9).
//   - A queue that is added late gets the whole state as its first batch, and misses no change (D8). The store does not know when each
//     object was received, so the first batch of any queue has the age of the oldest change of all.
//   - Each later batch holds only differences from what the handlers have. Without a difference there is no batch.
//   - A handler is never called concurrently with itself. The handlers of one queue get each batch in the order in which they were added.
//   - Memory is bounded by the largest number of objects at one time, never by the number of changes.
//   - When [Mux.Run] has returned, no goroutine of this package is running.
//
// V(3) logs the decision about each object, V(4) each received update.
package config
