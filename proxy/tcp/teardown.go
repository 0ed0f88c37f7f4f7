package tcp

import (
	"errors"
	"syscall"
	"time"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
)

// A Teardown is how a TCP connection ends, whichever engine carries it: what has to be done when one side finishes, breaks off
// or takes no more, and which reason that is. It opens and waits for nothing: the engine says what its reads and writes find,
// and does as the verdict says. The zero value is a connection on which both sides talk. It is not safe for concurrent use.
//
// While both sides live and talk, nothing limits how long they are silent. A direction ends when its source
// does, or when its destination no longer takes anything. The last column is the reason that this is
// for the connection to have ended, with the side that it names:
//
//	src ends by   dst is           then                                                 reason
//	---------------------------------------------------------------------------------------------------
//	FIN           there            the FIN is passed on; the other direction goes on    src finished
//	FIN           finished too     all is said: both are closed                         who did so first
//	RST           there            what src had sent is delivered to dst, then dst is   src reset
//	                               reset
//	no answer     there            the same (src has vanished: keepalive finds out, or  src vanished
//	                               HasVanished)
//	              gone: RST after  writing fails by EPIPE: dst had said all it wanted   dst reset
//	              its FIN          to. src gets that and the FIN; what src goes on
//	                               sending is thrown away. A client is given time to
//	                               finish; a backend is stopped by a reset as soon as
//	                               it has all of the request
//	              takes nothing    the end is not read yet, for it is behind what dst   (see Died)
//	                               is to take first: the silence is limited
//	              gone: RST        writing fails by ECONNRESET: to the other direction  dst reset
//	              without FIN      this is a source that ended by RST, and is dealt
//	                               with there; what src goes on sending is thrown away
//	                               meanwhile
//
// The first of these decides, but that one side has finished counts only as long as nothing else
// happens: that is how a connection goes well.
//
// From the first of these ends on the connection may be silent for HalfClosedTimeout: so long may nothing
// be delivered, in either direction. Then (HalfClosedTimeout is the reason), as when all is said, a side that has been sent the FIN of
// the other is closed, and a side that has not is reset: what was cut off never looks complete (v0.4 shut
// down the wrong half of each connection, and answers were lost: D39).
//
// Reading before closing is not politeness. To close a connection with input that was not read sends
// a RST, and a RST makes both kernels throw away what was on its way: the tail of an answer.
type Teardown struct {
	sides  [2]sideState
	reason uint8 // so far, plus 1; 0 while nothing has ended
	died   bool  // a side has, before its end was read: see Died

	delivered uint64        // when IsSilent or IsIdle was last asked: so much had arrived, on both sides
	until     time.Duration // and when the silence since then has lasted for too long; 0 before that
}

// A sideState is what is known of the end of one side.
type sideState struct {
	end    sideEnd // that was read from it
	broken bool    // it was reset, or has vanished
	epipe  epipe   // it takes no more: a write has failed by EPIPE
}

func (s *sideState) hasFinished() bool { return s.end != talks }
func (s *sideState) sawEPIPE() bool    { return s.epipe != none }

// An epipe is what EPIPE says of a side.
type epipe uint8

const (
	none     epipe = iota
	hadFIN         // it had sent FIN, and was gone when it was written to
	doubtful       // that, or it was reset: see Doubt
)

// A sideEnd is what comes after the last byte of a side.
type sideEnd uint8

const (
	talks sideEnd = iota // nothing has come yet
	saidFIN
	brokeOff
)

// A Side is one of the two sides of a connection, seen from here.
type Side uint8

// The client is the connection that was accepted, the backend the one that was dialled.
const (
	ClientSide Side = iota
	BackendSide
)

func (s Side) other() Side { return 1 - s }

// A Verdict says what the engine has to do now that a side has ended. Whatever it is, the engine asks IsSilent from time
// to time from then on.
type Verdict uint8

const (
	Wait   Verdict = iota // nothing: go on with the other direction
	Finish                // send FIN to the other side
	Flush                 // wait until the Survivor has been delivered all that it was sent; then end
	End                   // end: close both sides, or reset those that are not IsClean
)

// Ended notes that a read from a side has found its end: its FIN, or, by err, that it was reset or has vanished. All that it
// said before has been written to the other side, or thrown away if that Refuses.
func (t *Teardown) Ended(src Side, err error) Verdict {
	t.begin()
	s, d := &t.sides[src], &t.sides[src.other()]
	if err == nil && !s.broken { // else a write has taken the error that this FIN hides
		s.end = saidFIN
		t.Because(ends[src].finished)
		switch {
		case d.broken && d.hasFinished():
			return Flush
		case d.hasFinished():
			return End
		case d.broken, d.sawEPIPE():
			return Wait // until its own end is read
		}
		return Finish
	}
	if s.broken = true; s.end == talks {
		s.end = brokeOff
	}
	if t.Refuses(src.other()) { // what is only thrown away is no reason
		return End
	}
	t.Because(ends[src].of(err)) // without err it is known by now
	return Flush
}

// Unwritable notes that a write to a side has failed: it takes no more. The engine drops what it holds for it. Its own end is still
// to be read, and what the other side goes on sending is to be read and thrown away: else that might be stuck in its writes
// before it has heard all that this one had to say.
func (t *Teardown) Unwritable(dst Side, err error) {
	t.begin()
	if errors.Is(err, syscall.EPIPE) {
		t.sides[dst].epipe = max(t.sides[dst].epipe, hadFIN)
		return
	}
	t.Broke(dst, err)
}

// Doubt notes that a write to a side has failed by EPIPE after a call that makes several writes: that may have been told of a reset, and has
// told how much it wrote. Then a read finds a FIN where there was none, without an error before.
func (t *Teardown) Doubt(dst Side) {
	t.begin()
	t.sides[dst].epipe = doubtful
}

// IsDoubtful reports whether a FIN of a side needs another proof than a read: see Doubt.
func (t *Teardown) IsDoubtful(side Side) bool { return t.sides[side].epipe == doubtful }

// Broke notes an error of a side whose end is still to be read. The kernel tells of it only once: that read may find a FIN where
// there was none. (After EPIPE it is a true one: the peer had sent its FIN before the RST. Doubt has the exception.)
func (t *Teardown) Broke(side Side, err error) {
	t.begin()
	t.sides[side].broken = true
	t.Because(ends[side].of(err))
}

// Died notes that the kernel has no connection with a side any more, whose end is not read yet: it is behind what the other side does not take. The side was
// reset or has vanished, or it finished so long ago that its kernel has forgotten it. From now on the silence is limited. Who takes what there
// is hears the end.
func (t *Teardown) Died() {
	if !t.died {
		t.begin()
		t.died = true
	}
}

// HasDied reports whether a side has died before its end was read.
func (t *Teardown) HasDied() bool { return t.died }

// HasFinished reports whether nothing more is to be read from a side.
func (t *Teardown) HasFinished(side Side) bool { return t.sides[side].hasFinished() }

// HasBegun reports whether a side has finished, broken off, or takes no more.
func (t *Teardown) HasBegun() bool {
	for side := range Side(len(t.sides)) {
		if t.HasFinished(side) || t.Refuses(side) {
			return true
		}
	}
	return false
}

// Refuses reports whether a side takes no more.
func (t *Teardown) Refuses(side Side) bool { return t.sides[side].sawEPIPE() || t.sides[side].broken }

// Survivor returns the side that is to get all that it was sent before the end: see Flush.
func (t *Teardown) Survivor() Side {
	if t.sides[ClientSide].broken {
		return BackendSide
	}
	return ClientSide
}

// WorksForNobody reports whether the client has gone after it had finished, so that its backend is to be stopped once it has
// been delivered the whole request.
func (t *Teardown) WorksForNobody() bool {
	return t.sides[ClientSide].sawEPIPE() && t.HasFinished(ClientSide)
}

// IsSilent reports whether nothing has been delivered for so long that the connection has to end, where delivered is how much
// was, in both directions, and now a time. What the kernel still holds for a slow reader counts as it is delivered.
func (t *Teardown) IsSilent(now time.Duration, delivered uint64, timeout time.Duration) bool {
	return t.lasted(now, delivered, timeout, traffic.HalfClosedTimeout)
}

// IsIdle reports the same of a connection of which nothing has ended, where its service limits that silence.
func (t *Teardown) IsIdle(now time.Duration, delivered uint64, timeout time.Duration) bool {
	return t.lasted(now, delivered, timeout, traffic.Idle)
}

// lasted reports whether a silence has lasted for too long, and notes why the connection ends then.
func (t *Teardown) lasted(now time.Duration, delivered uint64, timeout time.Duration, why traffic.Reason) bool {
	if t.until == 0 || delivered != t.delivered {
		t.delivered, t.until = delivered, now+timeout
	}
	if now < t.until {
		return false
	}
	t.Because(why)
	return true
}

// Because notes why the connection ends, if it is the first reason. That a side has finished gives way to any other.
func (t *Teardown) Because(why traffic.Reason) {
	if t.reason == 0 || finishes(traffic.Reason(t.reason-1)) && !finishes(why) {
		t.reason = uint8(why) + 1
	}
}

func finishes(why traffic.Reason) bool {
	return why == traffic.ClientFinished || why == traffic.EndpointFinished
}

// begin has the silence after the first end counted from there, and not from when IsIdle has seen it begin.
func (t *Teardown) begin() {
	if !t.HasBegun() {
		t.until = 0
	}
}

// IsClean reports whether a side may be closed: it has been sent the FIN of the other, or will be by that. Otherwise it has to be
// reset, also when it has vanished, or the kernel would go on with it for minutes.
func (t *Teardown) IsClean(side Side) bool { return t.sides[side.other()].end == saidFIN }

// Reason returns why the connection has ended. It is the last that is asked.
func (t *Teardown) Reason() traffic.Reason {
	for side := range t.sides {
		if t.sides[side].sawEPIPE() {
			t.Because(ends[side].reset)
		}
	}
	if t.reason == 0 {
		return traffic.Shutdown // only the engine itself can have ended it
	}
	return traffic.Reason(t.reason - 1)
}

// ends are the reasons that each side can be.
var ends = [2]sideEnds{
	ClientSide:  {traffic.ClientFinished, traffic.ClientReset, traffic.ClientVanished},
	BackendSide: {traffic.EndpointFinished, traffic.EndpointReset, traffic.EndpointVanished},
}

type sideEnds struct{ finished, reset, vanished traffic.Reason }

// of returns the reason that an error of reading or writing stands for.
func (e sideEnds) of(err error) traffic.Reason {
	if sockopt.IsReset(err) {
		return e.reset
	}
	return e.vanished
}
