// Package engine is the contract between the Proxier and an engine, and the rules that all engines share.
//
// An [Engine] holds sockets open and moves bytes. The Proxier decides which sockets there are and who owns each: it swaps a pointer to
// a [Claim]. The rules in this package open nothing and wait for nothing. An engine drives them: it reports what happened, and does what
// they answer. So a rule exists once, and is tested without sockets.
//
//   - [Search]: which endpoint a TCP client tries next.
//   - [Connection]: the record of a TCP client, from its admission to its one ending.
//   - [UDPPort]: which UDP clients may begin a session, and which sessions go on when their port changes hands.
//   - [UDPSession]: where each datagram goes, when the session moves, and why it ends.
//   - [Teardown]: what follows when a side of a TCP connection finishes, fails or accepts no more bytes, and which reason that is.
package engine
