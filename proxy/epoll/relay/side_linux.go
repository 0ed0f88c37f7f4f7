package relay

import (
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/tcp"
)

// A side is one of the two TCP connections of a Conn.
type side struct {
	fd       int32
	which    tcp.Side
	full     int8 // reads in a row that filled the buffer; negative: reads in a row that found little
	open     bool
	shared   bool    // another process may have its socket as well
	held     *tail   // is still to be written to it; nil: nothing
	readable bool    // an event said that a read may find something, and no read has found the socket empty since
	wantsOut bool    // the socket is watched for EPOLLOUT
	hungUp   bool    // an event reported an end: a short read does not mean that there is no more
	urgent   bool    // an event reported urgent data: likewise, since a read ends before it
	ringing  ringing // how what it says is received
	sending  bool    // the ring has something to write to it
	header   uint16  // bytes of what is held that are our PROXY header, and first: they do not count as sent
}

// stalled reports whether earlier bytes wait to be written to the side.
func (s *side) stalled() bool { return s.held != nil || s.sending }

// isBusy reports whether the side sent more than fits into the buffer, or has not taken all that was sent to it.
func (s *side) isBusy() bool { return s.full > 0 || s.stalled() }

// onEvent notes what an event says of the side.
func (s *side) onEvent(mask uint32) {
	if mask&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.readable, s.hungUp = true, true
	} else if mask&(unix.EPOLLIN|unix.EPOLLPRI) != 0 {
		s.readable = true
	}
	if mask&unix.EPOLLPRI != 0 {
		s.urgent = true
	}
}

// News are the events that each side is watched for, edge-triggered.
const News = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET

// A ringing is how what a side says is received: see ringed_linux.go.
type ringing uint8

const (
	byCalls ringing = iota
	asked           // a receive is under way
	toAsk           // one begins when the other side has room
)

// A tail is the end of what was read, which did not fit into a socket any more.
type tail struct {
	rest []byte // a part of room, unless it is longer
	pipe *pipe  // what is in here comes after rest; nil: nothing does
	room [chunk]byte
}
