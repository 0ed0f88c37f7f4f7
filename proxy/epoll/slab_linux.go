package epoll

import "iter"

// A slab holds values of one type in slots that do not move. The index of a slot fits into an event. A slot that is used again
// has another generation, so an event of the value before does not reach the next one.
type slab[T any] struct {
	blocks []*[slabBlock]slot[T]
	free   []int32
	used   int
}

type slot[T any] struct {
	generation uint32 // how many values there have been
	taken      bool
	value      T
}

// slabBlock is how many slots are made at a time.
const slabBlock = 64

// add takes a free slot. Its value is zero.
func (s *slab[T]) add() (value *T, index int32, generation uint32) {
	if len(s.free) == 0 {
		base := int32(len(s.blocks) * slabBlock)
		s.blocks = append(s.blocks, new([slabBlock]slot[T]))
		for i := int32(slabBlock) - 1; i >= 0; i-- {
			s.free = append(s.free, base+i)
		}
	}
	last := len(s.free) - 1
	index = s.free[last]
	s.free = s.free[:last]
	p := s.place(index)
	p.generation = (p.generation + 1) & (1<<generationBits - 1)
	p.taken = true
	s.used++
	return &p.value, index, p.generation
}

// at returns the value in a slot, or nil when the slot is free or of another generation.
func (s *slab[T]) at(index int32, generation uint32) *T {
	p := s.place(index)
	if !p.taken || p.generation != generation {
		return nil
	}
	return &p.value
}

// remove frees a slot, and what its value held: there may never be so many values again.
func (s *slab[T]) remove(index int32) {
	p := s.place(index)
	p.taken = false
	p.value = *new(T)
	s.used--
	s.free = append(s.free, index)
}

func (s *slab[T]) place(index int32) *slot[T] {
	return &s.blocks[index/slabBlock][index%slabBlock]
}

// some yields the values in those of n places, beginning with one, that are taken. There are no more places when next is negative.
func (s *slab[T]) some(from, n int) (values iter.Seq[*T], next int) {
	places := len(s.blocks) * slabBlock
	to := min(from+n, places)
	if next = to; to == places {
		next = -1
	}
	return func(yield func(*T) bool) {
		for i := from; i < to; i++ {
			if p := s.place(int32(i)); p.taken && !yield(&p.value) {
				return
			}
		}
	}, next
}

// all yields the values in all places that are taken.
func (s *slab[T]) all(yield func(*T) bool) {
	for _, block := range s.blocks {
		for i := range block {
			if block[i].taken && !yield(&block[i].value) {
				return
			}
		}
	}
}

// Spare values are kept to be used again, a bounded number of them: the rest is for the garbage
// collector, so that a storm leaves nothing behind.
type freeList[T any] struct{ kept []*T }

const maxFree = 64

func (s *freeList[T]) take() *T {
	n := len(s.kept)
	if n == 0 {
		return new(T)
	}
	v := s.kept[n-1]
	s.kept = s.kept[:n-1]
	return v
}

func (s *freeList[T]) giveBack(v *T) {
	if len(s.kept) < maxFree {
		s.kept = append(s.kept, v)
	}
}
