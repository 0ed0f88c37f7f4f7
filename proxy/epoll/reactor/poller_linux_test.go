package reactor

import (
	"testing"
)

func TestATokenIsWhatItWasWhenItComesBack(t *testing.T) {
	for _, want := range []Token{
		{Waker, 0, 0},
		{7, 1<<31 - 1, 1<<GenerationBits - 1},
		{3, 12345, 678},
	} {
		ev := want.event(0)
		if got := TokenOf(&ev); got != want {
			t.Errorf("got %+v; want %+v", got, want)
		}
	}
}
