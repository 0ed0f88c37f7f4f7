// Package traffic counts what is carried, and why it ended or was dropped.
//
// A [Tally] belongs to one port of one service, and is counted up by any goroutine. Every client that was accepted ends once, by
// one [Reason]; every datagram that is not carried further is counted by one [DropReason].
package traffic
