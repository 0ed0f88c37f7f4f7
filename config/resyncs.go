package config

// Resyncs holds the wish for a resync until a source comes to it. Make it with [NewResyncs]; the source receives from it.
type Resyncs chan struct{} // capacity 1: a full channel means that a resync is already due

// NewResyncs returns one without a wish.
func NewResyncs() Resyncs { return make(Resyncs, 1) }

// Ask has a resync take place soon, and does not wait for it.
func (r Resyncs) Ask() {
	select {
	case r <- struct{}{}:
	default:
	}
}
