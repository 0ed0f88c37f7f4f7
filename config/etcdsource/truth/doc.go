// Package truth knows what the registry says, for experiments that ask whether a source says the same.
//
// # What it is for
//
//	writer ──▶ etcd ◀── source ──▶ recorder
//	   └──────▶ history ◀─────────────┘
//
// A [Writer] makes random changes in a real etcd and enters each into a [History], with the revision
// that etcd gave it. A [Recorder] stands where the Mux stands, and holds every Update against the
// history at exactly the Update's revision: that is the source's invariant, taken at its word. Whoever
// runs the experiment breaks things meanwhile. What is judged is only what came out.
//
// The model test of config/etcdsource does this with one source, as fast as it can; scripts/chaos does
// it with a whole proxy under load, and worse accidents.
//
// # Promises
//
//   - No etcd is asked what is true: a history is written by the one who wrote.
//   - A transaction whose answer was lost is in the history exactly if etcd committed it, also when a
//     cluster commits it late.
//   - An etcd that loses its data, or is given older ones, begins an [Era]. The Recorder finds out by
//     itself of which era an Update speaks.
//   - A failure says which Update, what is held, what should be, and where the wrong value came from.
package truth
