// Package connlog writes the connection log: one line of JSON for each ended TCP connection, each ended UDP session, and each refused
// TCP client; if it is asked to, also for each client that is given an endpoint.
//
//	relay, session ──Record──▶ bounded queue ──▶ Run: encode, write ──▶ file or standard output
//	never waits                full: counted      may wait without limit
//
// Traffic never waits for the log. When the disk is full, or the reader of a pipe is slow or gone, lines are lost and counted.
package connlog
