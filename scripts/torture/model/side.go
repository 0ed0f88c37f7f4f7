package model

import "fmt"

// A Side is what one side of a connection did and saw.
type Side struct {
	Sent      int64 // bytes that its kernel took
	Acked     int64 // of these, bytes that had certainly been acknowledged when it reset
	Finished  bool  // it sent FIN
	Left      bool  // it closed its connection, whatever was still to be received
	Reset     bool  // it reset its connection
	SendError string

	Received int64
	Differs  int64 // offset of the first byte that is not the one that was sent; -1: none
	Saw      Ending
	Problem  string // what went wrong beside the stream, such as a bad PROXY header
}

// An Ending is how a side's reading ended.
type Ending uint8

// The endings.
const (
	Nothing  Ending = iota // it ended its connection itself before anything else came
	Clean                  // FIN
	WasReset               // a reset
	Hung                   // nothing came for too long
	Refused                // it has not been connected
)

// String gives the ending in words.
func (e Ending) String() string {
	return [...]string{"nothing before its own end", "a clean end", "a reset", "silence", "a refusal"}[e]
}

// brokeOff reports whether a side may have cut the connection short.
func (s *Side) brokeOff() bool { return s.Reset || s.Left }

// String gives the side in words.
func (s *Side) String() string {
	if s == nil {
		return "none"
	}
	text := fmt.Sprintf("sent %d", s.Sent)
	for _, did := range []struct {
		so   bool
		what string
	}{{s.Finished, "finished"}, {s.Left, "left"}, {s.Reset, fmt.Sprintf("reset (%d acknowledged)", s.Acked)}, {s.SendError != "", "send error " + s.SendError}} {
		if did.so {
			text += ", " + did.what
		}
	}
	return text + fmt.Sprintf("; received %d, saw %v", s.Received, s.Saw)
}

// A Line is what the connection log says of a connection.
type Line struct {
	Service  string
	Sent     int64
	Received int64
	Reason   string
}
