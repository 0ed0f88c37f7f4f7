// Package slab holds values in slots that do not move, and keeps a few spare values for reuse.
//
// A slot has an index and a generation, which together fit into the 64 bits that the kernel gives back with an event. A slot that is
// used again has another generation, so an event for the value before does not reach the next one.
package slab
