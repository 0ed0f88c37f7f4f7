// Package engine is the contract between the Proxier and an engine, and what every engine is built on.
//
// An [Engine] holds sockets open and moves bytes. The Proxier decides which sockets there are and who owns each: it swaps a pointer to
// a [Claim]. A [Base] holds what an engine has once: its [Config], its limits, its counts, its log limiters, and the sockets that it may have from a predecessor. The rules for clients
// are in packages tcp and udp. [Handover] is what an engine does when another process takes over.
package engine
