package reactor

import (
	"math/rand/v2"
	"testing"
)

func TestALateEventDoesNotReachTheNextTenant(t *testing.T) {
	var s Slab[string]
	value, index, generation := s.Add()
	*value = "first"
	s.Remove(index)
	if got := s.At(index, generation); got != nil {
		t.Errorf("an empty place holds %q", *got)
	}
	value, again, next := s.Add()
	*value = "second"
	if again != index || next == generation {
		t.Fatalf("place %d in generation %d; want place %d again, in another generation than %d", again, next, index, generation)
	}
	if got := s.At(index, generation); got != nil {
		t.Errorf("the generation of the first value leads to %q", *got)
	}
	if got := s.At(index, next); got == nil || *got != "second" {
		t.Errorf("the generation of the second value leads to %v", got)
	}
}

// A crowd that has left is not held in memory by the places that it had.
func TestAnEmptyPlaceHoldsNothing(t *testing.T) {
	var s Slab[*string]
	value, index, _ := s.Add()
	*value = new(string)
	s.Remove(index)
	if p := s.place(index); p.value != nil {
		t.Error("the value that was removed is still there")
	}
}

// An event has room for so many generations. Then they begin anew, and still find the value.
func TestGenerationsBeginAnewWhenTheyAreUsedUp(t *testing.T) {
	var s Slab[string]
	_, index, _ := s.Add()
	s.place(index).generation = 1<<GenerationBits - 1
	s.Remove(index)
	_, index, generation := s.Add()
	if generation>>GenerationBits != 0 || s.At(index, generation) == nil {
		t.Errorf("generation %d does not find its value, or needs more than %d bits", generation, GenerationBits)
	}
}

// The same as slab, with a plain map.
func TestSlotsAgreeWithAMap(t *testing.T) {
	type place struct {
		index      int32
		generation uint32
	}
	var s Slab[int]
	model, gone := make(map[place]int), make(map[place]bool)
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 10_000 {
		if random.IntN(3) > 0 {
			value, index, generation := s.Add()
			*value = step
			p := place{index, generation}
			if _, taken := model[p]; taken {
				t.Fatalf("step %d: place %v was given twice", step, p)
			}
			model[p] = step
			delete(gone, p)
		} else {
			for p := range model {
				s.Remove(p.index)
				delete(model, p)
				gone[p] = true
				break
			}
		}
		if s.used != len(model) {
			t.Fatalf("step %d: %d used; want %d", step, s.used, len(model))
		}
	}
	for p, want := range model {
		if got := s.At(p.index, p.generation); got == nil || *got != want {
			t.Errorf("place %v holds %v; want %d", p, got, want)
		}
	}
	for p := range gone {
		if got := s.At(p.index, p.generation); got != nil {
			t.Errorf("place %v holds %d after its tenant has left", p, *got)
		}
	}
	n := 0
	for range s.All {
		n++
	}
	if n != len(model) {
		t.Errorf("all yields %d values; want %d", n, len(model))
	}
}

// A storm of those who need a buffer leaves nothing behind but a few buffers.
func TestAFreeListKeepsABoundedNumber(t *testing.T) {
	var s FreeList[[16 << 10]byte]
	for range 10 * maxFree {
		s.GiveBack(new([16 << 10]byte))
	}
	if len(s.kept) != maxFree {
		t.Errorf("%d are kept; want %d", len(s.kept), maxFree)
	}
	for range maxFree {
		s.Take()
	}
	if len(s.kept) != 0 || s.Take() == nil {
		t.Error("what is kept is not used again, or nothing is made when none is kept")
	}
}
