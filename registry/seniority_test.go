package registry

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTheOlderClaimComesFirstAndThenTheName(t *testing.T) {
	want := []Seniority{
		{1, Name{"z", "z"}},
		{2, Name{"a", "z"}},
		{2, Name{"b", "a"}},
		{2, Name{"b", "b"}},
		{3, Name{"", ""}},
	}
	got := slices.Clone(want)
	rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, Seniority.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
