package epoll

import (
	"math/rand/v2"
	"testing"
)

func TestALateEventDoesNotReachTheNextTenant(t *testing.T) {
	var s slab[string]
	value, index, generation := s.add()
	*value = "first"
	s.remove(index)
	if got := s.at(index, generation); got != nil {
		t.Errorf("an empty place holds %q", *got)
	}
	value, again, next := s.add()
	*value = "second"
	if again != index || next == generation {
		t.Fatalf("place %d in generation %d; want place %d again, in another generation than %d", again, next, index, generation)
	}
	if got := s.at(index, generation); got != nil {
		t.Errorf("the generation of the first value leads to %q", *got)
	}
	if got := s.at(index, next); got == nil || *got != "second" {
		t.Errorf("the generation of the second value leads to %v", got)
	}
}

// A crowd that has left is not held in memory by the places that it had.
func TestAnEmptyPlaceHoldsNothing(t *testing.T) {
	var s slab[*string]
	value, index, _ := s.add()
	*value = new(string)
	s.remove(index)
	if p := s.place(index); p.value != nil {
		t.Error("the value that was removed is still there")
	}
}

// A token has room for so many generations. Then they begin anew, and events still find the value.
func TestErasBeginAnewWhenTheyAreUsedUp(t *testing.T) {
	var s slab[string]
	_, index, _ := s.add()
	s.place(index).generation = 1<<generationBits - 1
	s.remove(index)
	_, index, generation := s.add()
	ev := token{clientSide, index, generation}.event(0)
	if got := tokenOf(&ev); s.at(got.index, got.generation) == nil {
		t.Errorf("an event of generation %d does not find its value", generation)
	}
}

func TestATicketIsWhatItWasWhenItComesBack(t *testing.T) {
	for _, want := range []token{
		{waker, 0, 0},
		{answering, 1<<31 - 1, 1<<generationBits - 1},
		{backendSide, 12345, 678},
	} {
		ev := want.event(0)
		if got := tokenOf(&ev); got != want {
			t.Errorf("got %+v; want %+v", got, want)
		}
	}
}

// The same as slab, with a plain map.
func TestSlotsAgreeWithAMap(t *testing.T) {
	type place struct {
		index      int32
		generation uint32
	}
	var s slab[int]
	model, gone := make(map[place]int), make(map[place]bool)
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 10_000 {
		if random.IntN(3) > 0 {
			value, index, generation := s.add()
			*value = step
			p := place{index, generation}
			if _, taken := model[p]; taken {
				t.Fatalf("step %d: place %v was given twice", step, p)
			}
			model[p] = step
			delete(gone, p)
		} else {
			for p := range model {
				s.remove(p.index)
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
		if got := s.at(p.index, p.generation); got == nil || *got != want {
			t.Errorf("place %v holds %v; want %d", p, got, want)
		}
	}
	for p := range gone {
		if got := s.at(p.index, p.generation); got != nil {
			t.Errorf("place %v holds %d after its tenant has left", p, *got)
		}
	}
	n := 0
	for range s.all {
		n++
	}
	if n != len(model) {
		t.Errorf("all yields %d values; want %d", n, len(model))
	}
}
