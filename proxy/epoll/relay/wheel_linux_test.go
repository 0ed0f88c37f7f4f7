package relay

import (
	"math/rand/v2"
	"testing"
	"time"

	"kubeproxy/internal/monotonic"
)

// An item is a member, and nothing else.
type item struct{ timer timer[item] }

func (i *item) Timer() *timer[item] { return &i.timer }

// Whatever is set, stopped and set anew, a member is due once, not early, and late by at most a step.
func TestAWheelAgreesWithAPlainList(t *testing.T) {
	var w wheel[item, *item]
	w.Init()
	items := make([]item, 300)
	want := make(map[*item]time.Duration)
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Duration(0)
	for step := range 20_000 {
		c := &items[random.IntN(len(items))]
		switch random.IntN(4) {
		case 0:
			w.Stop(c)
			delete(want, c)
		case 1, 2:
			due := now + time.Duration(random.Int64N(int64(1)<<random.IntN(38)))
			w.Set(c, now, due)
			want[c] = due
		default:
			now += time.Duration(random.Int64N(int64(20 * time.Millisecond)))
		}
		for {
			c, isDue := w.Next(now)
			if c == nil {
				break
			}
			if !isDue {
				continue
			}
			if due, isSet := want[c]; !isSet || due > now {
				t.Fatalf("step %d: due at %v, although it is to be at %v (%v)", step, now, due, isSet)
			}
			delete(want, c)
		}
		for _, due := range want {
			if due+wheelStep <= now {
				t.Fatalf("step %d: one that was due at %v is not at %v", step, due, now)
			}
		}
	}
	for c := range want {
		w.Stop(c)
	}
	if w.Wake() != monotonic.Never || w.used != 0 {
		t.Errorf("rings %b are said to have members when none is set", w.used)
	}
}
