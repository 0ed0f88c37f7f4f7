package proxy

// A stage says how far a take-over has come, in either process.
//
//	predecessor:  serves ─ Listeners ─▶ offers ─ Freeze ─▶ rests ─ Release ─▶ released
//	                ▲                     └─────── Thaw ─────┘
//	successor:    serves ─ AdoptListeners ─▶ adopts ─ Serve ─▶ serves
type stage uint8

const (
	serves   stage = iota
	offers         // a successor has the listeners, and may get the rest
	rests          // and gets it: nothing moves
	released       // a successor serves; what is left here ends
	adopts         // from a predecessor, and nothing moves yet
)

// isTakenOver reports whether a successor is at work. So long nothing may change that it was told.
func (s stage) isTakenOver() bool { return s == offers || s == rests }
