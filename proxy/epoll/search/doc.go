// Package search is what the searches for endpoints of an event loop share, those of connections and those of UDP sessions.
//
// A [Scheduler] says how many attempts a turn has room for, and which searches go on in a later turn. It looks names up beside the loop,
// and refuses endpoints that are the proxy itself.
package search
