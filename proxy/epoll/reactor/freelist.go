package reactor

// A FreeList keeps spare values to be used again, a bounded number of them: the rest is for the garbage
// collector, so that a storm leaves nothing behind.
type FreeList[T any] struct{ kept []*T }

const maxFree = 64

// Take returns a spare value, with what it held, or else a new one.
func (s *FreeList[T]) Take() *T {
	n := len(s.kept)
	if n == 0 {
		return new(T)
	}
	v := s.kept[n-1]
	s.kept = s.kept[:n-1]
	return v
}

// GiveBack keeps a value for Take, unless enough are kept.
func (s *FreeList[T]) GiveBack(v *T) {
	if len(s.kept) < maxFree {
		s.kept = append(s.kept, v)
	}
}
