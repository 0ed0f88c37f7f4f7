// Package tcp holds the rules for TCP clients that all engines share.
//
// The rules open nothing and wait for nothing. An engine drives them: it reports what happened, and does what they answer. So they are
// tested without sockets. When to call them is up to each engine.
//
//   - [Admit]: which clients are let in.
//   - [Connection]: the account of a client, from its admission to its one ending.
//   - [Race]: which endpoint a client tries next, and when, until one answers.
//   - [Teardown]: what follows when a side of a connection finishes, fails or accepts no more bytes, and which reason that is.
//   - [HasVanished]: when a peer no longer answers.
package tcp
