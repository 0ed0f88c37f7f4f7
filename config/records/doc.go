// Package records keeps what a source knows of the records that it follows. Every source needs the same of it, however
// it talks to its registry: so this package names no registry and does no I/O but the log.
//
//	page by page ─▶ List ──Merge──▶ ┐                                ┌▶ registry.Update, for the Mux
//	change by change ──Put, Remove─▶ State: an entry for each key ──▶┤
//	                                ┘  decoded by decode.Decode      └▶ config.Status, the log
//
// A [Version] is one value of one key. A source makes it of what its registry sends, and gives it to a [State], which
// compares, decodes and remembers. [State.Update] takes out what has changed by it. An [OutageLog] sends that, keeps the status of
// the source, and writes the log lines of its outages.
//
// # Promises
//
//   - In force is, of each key, the newest version that decodes, of those that the State was given in the present life of
//     the key. A version that does not decode changes nothing (D17, D18). A removal or a new life ends what was good.
//   - The bytes of a value decide whether it is news, never its revision: a registry that was wiped can come back with the
//     same revisions and other values. A value that is known costs a hash and no decoding.
//   - A bad value is logged once, with its key and what stays in force. It is listed in the Status until it is mended. A
//     flood of bad values takes 20 lines in a window.
//   - The endpoints of a service are what all endpoint slices add up to that name it, or, if none does, what the record of its endpoints
//     says. Slices are good and bad each for itself. A change of one costs by the size of the slices of its service.
//   - A service may name a key outside the registry that elects its endpoints: see [Holder].
//   - Two keys may name one object: in namespace default the key with a namespace and the one without. The first one
//     counts while it has a good version.
//   - Keys and values may lie in a buffer that is used again. What a State or a List keeps of them it copies.
//
// # Cost
//
// To read 500 known keys allocates nothing for a key. An unchanged list of 10,000 keys is merged without decoding any of
// them. A first list is decoded on all processors while it is read.
package records
