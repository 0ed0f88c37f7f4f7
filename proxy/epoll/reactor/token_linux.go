package reactor

import (
	"golang.org/x/sys/unix"
)

// A Token is what an event is about: its kind, and which one of that kind. The kernel gives back what it was
// given, 64 bits, together with each event. A number alone would not do: within one turn a
// connection may end and another begin in its place, and a late event of the first must not reach the second.
// So each slot has a generation, which grows with each use: stale events are dropped.
type Token struct {
	Kind       Kind
	Index      int32
	Generation uint32 // of GenerationBits
}

// A Kind says what a token is about.
type Kind uint32

// Waker is the kind of the event that Wake causes: see Drain. Others are for the loop to name, up to 6.
const Waker Kind = 0

// polling is the kind of completions that are for the poller itself.
const polling Kind = 7

func (t Token) event(mask uint32) unix.EpollEvent {
	return unix.EpollEvent{Events: mask, Fd: t.Index, Pad: int32(uint32(t.Kind)<<GenerationBits | t.Generation&(1<<GenerationBits-1))}
}

// TokenOf returns the token of an event.
func TokenOf(ev *unix.EpollEvent) Token {
	return Token{Kind(uint32(ev.Pad) >> GenerationBits), ev.Fd, uint32(ev.Pad) & (1<<GenerationBits - 1)}
}

// Data is the token as entries of a ring bear it.
func (t Token) Data() uint64 {
	ev := t.event(0)
	return uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
}

// TokenOfData returns the token that a completion bears.
func TokenOfData(data uint64) Token {
	return TokenOf(&unix.EpollEvent{Fd: int32(uint32(data)), Pad: int32(uint32(data >> 32))})
}
