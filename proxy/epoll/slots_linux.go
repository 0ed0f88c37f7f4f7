package epoll

import "iter"

// Slots hold values of one type in places that do not move, each known by a number that fits into an
// event. A place is used again after its tenant has left, in another era.
type slots[T any] struct {
	blocks []*[slotBlock]slot[T]
	free   []int32
	used   int
}

type slot[T any] struct {
	era   uint32 // how many tenants there have been
	taken bool
	value T
}

// slotBlock is how many places are made at a time.
const slotBlock = 64

// add finds a place. Its value is zero.
func (s *slots[T]) add() (value *T, index int32, era uint32) {
	if len(s.free) == 0 {
		base := int32(len(s.blocks) * slotBlock)
		s.blocks = append(s.blocks, new([slotBlock]slot[T]))
		for i := int32(slotBlock) - 1; i >= 0; i-- {
			s.free = append(s.free, base+i)
		}
	}
	last := len(s.free) - 1
	index = s.free[last]
	s.free = s.free[:last]
	p := s.place(index)
	p.era = (p.era + 1) & (1<<eraBits - 1)
	p.taken = true
	s.used++
	return &p.value, index, p.era
}

// at returns the value in a place, or nil when its tenant is not the one of that era.
func (s *slots[T]) at(index int32, era uint32) *T {
	p := s.place(index)
	if !p.taken || p.era != era {
		return nil
	}
	return &p.value
}

// remove frees a place. What its value had is let go of: there may never be so many tenants again.
func (s *slots[T]) remove(index int32) {
	p := s.place(index)
	p.taken = false
	p.value = *new(T)
	s.used--
	s.free = append(s.free, index)
}

func (s *slots[T]) place(index int32) *slot[T] {
	return &s.blocks[index/slotBlock][index%slotBlock]
}

// some yields the values in those of n places, beginning with one, that are taken. There are no more places when next is negative.
func (s *slots[T]) some(from, n int) (values iter.Seq[*T], next int) {
	places := len(s.blocks) * slotBlock
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
func (s *slots[T]) all(yield func(*T) bool) {
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
type spare[T any] struct{ kept []*T }

const maxSpare = 64

func (s *spare[T]) take() *T {
	n := len(s.kept)
	if n == 0 {
		return new(T)
	}
	v := s.kept[n-1]
	s.kept = s.kept[:n-1]
	return v
}

func (s *spare[T]) giveBack(v *T) {
	if len(s.kept) < maxSpare {
		s.kept = append(s.kept, v)
	}
}
