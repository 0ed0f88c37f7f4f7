// Package udp holds the rules for UDP clients that all engines share.
//
// The rules open nothing and wait for nothing. An engine drives them: it reports what happened on a socket, and does what the
// [Verdict] says. So a rule exists once, and is tested without sockets.
//
//   - [Port]: which clients may begin a session, and which sessions go on when their port changes hands.
//   - [Session]: where each datagram goes, when the session moves, and why it ends.
package udp
