// Package engine is the contract between the Proxier and an engine, and the rules that all engines share.
//
// An [Engine] holds sockets open and moves bytes. The Proxier decides which sockets there are and who owns each: it swaps a pointer to
// a [Claim]. The rules in this package open nothing and wait for nothing: which endpoint is tried next ([Search]), what the books say of a
// TCP client ([Connection]), why a UDP session ends ([SessionEnds], [Unserved]) and what an error means ([SideEnds]).
package engine
