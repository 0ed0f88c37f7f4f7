package registry

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTheFirstSourceComesFirstThenTheOlderClaimThenTheName(t *testing.T) {
	want := []Precedence{
		{0, 1, Name{"z", "z"}},
		{0, 2, Name{"a", "z"}},
		{0, 2, Name{"b", "a"}},
		{0, 2, Name{"b", "b"}},
		{0, 3, Name{"", ""}},
		{1, 1, Name{"", ""}},
		{2, 0, Name{"", ""}},
	}
	got := slices.Clone(want)
	rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, Precedence.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
