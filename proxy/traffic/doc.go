// Package traffic counts what is carried, and the reasons for which connections end and datagrams are dropped.
//
// A [Tally] belongs to one port of one service, and may be counted up by any goroutine. Every client that was accepted ends once, by
// one [Reason]; every datagram that is not carried further is counted by one [DropReason].
package traffic
