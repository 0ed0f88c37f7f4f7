package reactor

import (
	"slices"
	"testing"
)

// A turn has room for so many attempts, and the next one for as many again.
func TestATurnHasRoomForAFewAttempts(t *testing.T) {
	turn := Turn{Number: 1}
	s := Searches{Turn: &turn}
	for range 3 {
		turn.Number++
		for n := range AttemptsATurn {
			if !s.MayAttempt() {
				t.Fatalf("turn %d has room for %d attempts; want %d", turn.Number, n, AttemptsATurn)
			}
		}
		if s.MayAttempt() {
			t.Errorf("turn %d has room for more than %d attempts", turn.Number, AttemptsATurn)
		}
	}
}

// Searches that wait go on in their order, one attempt each, as long as the turn has room; those that need another attempt
// come after the others.
func TestSearchesThatWaitGoOnInTheirOrder(t *testing.T) {
	turn := Turn{Number: 1}
	s := Searches{Turn: &turn}
	const searches = AttemptsATurn + 2
	for n := range int32(searches) {
		s.Postpone(Token{Index: n})
	}
	var went []int32
	for range 2 {
		turn.Number++
		for token := range s.Due {
			went = append(went, token.Index)
			if !s.MayAttempt() {
				t.Fatal("a search is due without room for an attempt")
			}
			s.Postpone(token)
		}
	}
	var want []int32
	for n := range 2 * AttemptsATurn {
		want = append(want, int32(n%searches))
	}
	if !slices.Equal(went, want) || s.Waiting() != searches {
		t.Errorf("searches went on in the order %v, and %d wait; want %v and %d", went, s.Waiting(), want, searches)
	}
}
