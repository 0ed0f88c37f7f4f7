package lograte

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFewLinesOfAKindPassAndTheOthersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter[int] // the zero value is ready
		began, subject, before := time.Now(), 0, Held()
		for _, c := range []struct {
			at     time.Duration
			lines  int
			passed int
			notes  string
		}{
			{0, 19, 19, ""},
			{10 * time.Second, 234, 1, " (more lines of this kind are held back for 50s)"},
			{59 * time.Second, 1, 0, ""},
			{60 * time.Second, 2, 2, " (234 lines of this kind were held back)"},
			{200 * time.Second, 20, 20, " (more lines of this kind are held back for 1m0s)"},
		} {
			time.Sleep(time.Until(began.Add(c.at)))
			passed, notes := 0, ""
			for range c.lines {
				subject++
				if note, ok := l.Allow(subject); ok {
					passed++
					notes += note
				}
			}
			if passed != c.passed || notes != c.notes {
				t.Errorf("at %v, of %d lines %d passed, with %q; want %d, with %q", c.at, c.lines, passed, notes, c.passed, c.notes)
			}
		}
		if n := Held() - before; n != 234 {
			t.Errorf("%d lines were counted as held back; want 234", n)
		}
	})
}

func TestANoisySubjectLeavesTheLinesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter[string]
		passed := make(map[string]int)
		for i := range 10_000 {
			about := "noisy"
			if i%1000 == 999 {
				about = string(rune('a' + i/1000))
			}
			if _, ok := l.Allow(about); ok {
				passed[about]++
			}
		}
		if len(passed) != 11 || passed["noisy"] != 1 || passed["j"] != 1 {
			t.Errorf("lines by subject: %v; want one about each of the 11", passed)
		}
	})
}

func TestRepeatedLinesGrowRareAndANewTroubleIsLoudAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Limiter[struct{}]{Lines: 1, First: 10 * time.Second, Last: 5 * time.Minute}
		var at []time.Duration
		for began := time.Now(); time.Since(began) < 20*time.Minute; time.Sleep(time.Second) {
			if _, ok := l.Allow(struct{}{}); ok {
				at = append(at, time.Since(began)/time.Second)
			}
		}
		if want := []time.Duration{0, 10, 30, 70, 150, 310, 610, 910}; !slices.Equal(at, want) {
			t.Fatalf("lines after %d seconds; want them after %d", at, want)
		}
		time.Sleep(10*time.Minute + time.Second) // the last window, and as long again
		if _, ok := l.Allow(struct{}{}); !ok {
			t.Error("the first line of new trouble was held back")
		}
		time.Sleep(10 * time.Second)
		if _, ok := l.Allow(struct{}{}); !ok {
			t.Error("new trouble begins with long windows")
		}
	})
}

func TestManyGoroutinesTogetherGetTheLinesOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Limiter[int]{Lines: 5}
		var passed atomic.Int32
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for j := range 100 {
					if _, ok := l.Allow(100*i + j); ok {
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := passed.Load(); n != 5 {
			t.Errorf("%d lines passed; want 5", n)
		}
	})
}

func BenchmarkAllowOfALineThatIsHeldBack(b *testing.B) {
	var l Limiter[int]
	i := 0
	for b.Loop() {
		i++
		l.Allow(i)
	}
}
