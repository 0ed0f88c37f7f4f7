package engine

import (
	"slices"
	"testing"
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
