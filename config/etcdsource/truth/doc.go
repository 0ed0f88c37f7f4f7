// Package truth records what the registry held at each revision, and compares a source with it.
//
// # What it is for
//
//	writer ──▶ etcd ◀── source ──▶ recorder
//	   └──────▶ history ◀─────────────┘
//
// A [Writer] makes random changes in a real etcd and adds each to a [History], with the revision that etcd gave it. A [Recorder] takes
// the place of the Mux. It compares every Update with the history at exactly the Update's revision, which is the invariant of the
// source. The experiment injects faults meanwhile. Only the Updates are judged.
//
// The model test of config/etcdsource does this with one source, as fast as it can; scripts/chaos does
// it with a whole proxy under load, and worse accidents.
//
// # Promises
//
//   - A history comes from the writer alone; no etcd is asked for it.
//   - A transaction whose answer was lost is in the history exactly if etcd committed it, also when a
//     cluster commits it late.
//   - An etcd that loses its data, or is given older data, begins an [Era]. The Recorder finds out by itself to which era an Update
//     belongs.
//   - A failure says which Update, what is held, what should be, and where the wrong value came from.
package truth
