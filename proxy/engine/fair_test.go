package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Of a full node, services get what they want up to one level: those below it keep what they have.
func TestTheLastConnectionsAreForServicesBelowTheirShare(t *testing.T) {
	for _, c := range []struct {
		name   string
		others []int64
		n      int64
		want   bool
	}{
		{"alone, and nearly all used", nil, 95, false},
		{"the first one of a service", []int64{95}, 0, true},
		{"a second service below the half", []int64{95}, 46, true},
		{"a second service at the half", []int64{60}, 48, false},
		{"the first service above the half", []int64{40}, 60, false},
		{"what small services leave is for one", []int64{1, 1, 1, 2}, 89, true},
		{"and not more", []int64{1, 1, 1, 2}, 90, false},
		{"a small service beside two large ones", []int64{50, 44}, 1, true},
		{"the third of three", []int64{48, 47}, 31, true},
		{"the third of three has its share", []int64{48, 47}, 32, false},
	} {
		all := append([]int64{c.n}, c.others...)
		b := Base{Cfg: Config{MaxConnections: 100, EachActive: slices.Values(all)}}
		if got := b.MayConnect(c.n, 97); got != c.want {
			t.Errorf("%s: %d beside %v may have one more: %v", c.name, c.n, c.others, got)
		}
		if !b.MayConnect(c.n, 94) {
			t.Errorf("%s: refused while more than a twentieth is free", c.name)
		}
	}
}

// A thread that the kernel stops during a look makes it long, and no reason to go by its counts fifty times as long.
func TestALookThatWasInterruptedIsNotRestedFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, stopped := int64(60), time.Duration(0)
		b := Base{Cfg: Config{MaxConnections: 100, EachActive: func(yield func(int64) bool) {
			time.Sleep(stopped)
			_ = yield(60) && yield(other)
		}}}
		b.MayConnect(60, 97)
		time.Sleep(time.Millisecond)
		stopped = time.Second
		b.MayConnect(60, 97)
		stopped, other = 0, 30
		if !b.MayConnect(60, 97) {
			t.Error("a service is refused for what another one had before the look ended")
		}
	})
}
