// Package connlog writes the connection log: one line of JSON for each TCP connection and each UDP
// session that has ended, and for each TCP client that was turned away.
//
//	relay, session ──Record──▶ bounded queue ──▶ Run: encode, write ──▶ file or standard output
//	never waits                full: counted      may wait as long as it likes
//
// The log serves the traffic, and not the other way round. When the disk is full, or whoever reads
// the pipe has fallen asleep or gone, lines are lost and counted, and no client waits for it.
package connlog
