// Package engine is the contract between the Proxier and an engine, and what every engine is built on.
//
// An [Engine] holds sockets open and moves bytes. The Proxier decides which sockets there are and who owns each: it swaps a pointer to
// a [Claim]. A [Base] holds what an engine has once: its [Config], its limits, its counts and its log limiters. The rules for clients
// are in packages tcp and udp.
package engine
