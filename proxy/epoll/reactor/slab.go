package reactor

import "iter"

// A Slab holds values of one type in slots that do not move. A slot has an index and a generation, which together fit into the 64 bits
// that the kernel gives back with an event. A slot that is used again has another generation, so an event for the value before does not
// reach the next one.
type Slab[T any] struct {
	blocks []*[slabBlock]slot[T]
	free   []int32
	used   int // slots that are taken
}

type slot[T any] struct {
	generation uint32 // how many values there have been
	taken      bool
	value      T
}

// GenerationBits is how many bits a generation has: what an event can bear beside an index and its kind.
const GenerationBits = 29

// slabBlock is how many slots are made at a time. So many fill whole pages of the Go runtime, of 8 KiB, whatever the size of a slot is. Of 64
// slots the runtime would round up the size, by 16 bytes for each connection. The kernel gives memory to a page when its first slot is used.
const slabBlock = 1024

// Add takes a free slot. Its value is zero.
func (s *Slab[T]) Add() (value *T, index int32, generation uint32) {
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
	p.generation = (p.generation + 1) & (1<<GenerationBits - 1)
	p.taken = true
	s.used++
	return &p.value, index, p.generation
}

// Used returns how many slots are taken.
func (s *Slab[T]) Used() int { return s.used }

// At returns the value in a slot, or nil when the slot is free or of another generation.
func (s *Slab[T]) At(index int32, generation uint32) *T {
	p := s.place(index)
	if !p.taken || p.generation != generation {
		return nil
	}
	return &p.value
}

// Remove frees a slot, and what its value held: there may never be so many values again.
func (s *Slab[T]) Remove(index int32) {
	p := s.place(index)
	p.taken = false
	p.value = *new(T)
	s.used--
	s.free = append(s.free, index)
}

func (s *Slab[T]) place(index int32) *slot[T] {
	return &s.blocks[index/slabBlock][index%slabBlock]
}

// Some yields the values in those of n places, beginning with one, that are taken. There are no more places when next is negative.
func (s *Slab[T]) Some(from, n int) (values iter.Seq[*T], next int) {
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

// All yields the values in all places that are taken.
func (s *Slab[T]) All(yield func(*T) bool) {
	for _, block := range s.blocks {
		for i := range block {
			if block[i].taken && !yield(&block[i].value) {
				return
			}
		}
	}
}
