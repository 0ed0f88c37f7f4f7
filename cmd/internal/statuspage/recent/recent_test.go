package recent

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

func TestTheNewestEndingsAreKeptAndRecordingNeverWaits(t *testing.T) {
	var endings Endings
	for i := range 3 * KeptEndings {
		endings.Record(traffic.Ending{Listener: registry.ListenerID{Number: uint16(i)}})
	}
	all := endings.Last(func(*traffic.Ending) bool { return true })
	if len(all) != KeptEndings {
		t.Fatalf("%d endings are kept; want %d", len(all), KeptEndings)
	}
	for i, e := range all {
		if want := uint16(3*KeptEndings - 1 - i); e.Listener.Number != want {
			t.Fatalf("ending %d is that of port %d; want %d", i, e.Listener.Number, want)
		}
	}
	for i := range endings.slots {
		endings.slots[i].mu.Lock() // as a viewer does, who never lets go
	}
	endings.Record(traffic.Ending{})
	if n := testing.AllocsPerRun(100, func() { endings.Record(traffic.Ending{}) }); n > 0 {
		t.Errorf("to record an ending allocates %v times; want 0", n)
	}
}

func TestRatesAreOfTheLastSecondsOnly(t *testing.T) {
	var m Meter[int]
	now := time.Now()
	read := func(after time.Duration, begun uint64) Rates {
		now = now.Add(after)
		m.Read(now, map[int]Counts{1: {Begun: begun}})
		return m.Rate(now, 1, Counts{Begun: begun})
	}
	if got := read(0, 1000); got.Known {
		t.Errorf("at the first look a rate is known: %v", got)
	}
	if got := read(2*time.Second, 1020); got.New != 10 {
		t.Errorf("20 within 2 s make %v per second; want 10", got.New)
	}
	read(4*time.Second, 1060)
	if got := read(5*time.Second, 1060); got.New != 0 {
		t.Errorf("after a quiet step the rate is %v; want 0", got.New)
	}
	if got := read(time.Second, 7); got.Known {
		t.Errorf("counters that went back make a rate: %v", got)
	}
	if got := read(time.Hour, 9); got.Known {
		t.Errorf("an hour without a look makes a rate: %v", got)
	}
}

func TestAHistoryHasFiveMinutesAtMost(t *testing.T) {
	var h History
	now := time.Now()
	for i := range 200 {
		now = now.Add(meterStep)
		h.Add(now, Counts{Active: int64(i), Begun: uint64(10 * i)})
		h.Add(now.Add(time.Second), Counts{Begun: uint64(10 * i)}) // too soon
	}
	if len(h.Points) != KeptPoints {
		t.Fatalf("%d points are kept; want %d", len(h.Points), KeptPoints)
	}
	if last := h.Points[KeptPoints-1]; last.Active != 199 || last.New != 2 {
		t.Errorf("the last point is %+v; want 199 clients, 2 new per second", last)
	}
	h.Add(now.Add(time.Hour), Counts{})
	if len(h.Points) != KeptPoints {
		t.Error("an hour without a look makes a point")
	}
}

func TestOnlyServicesThatSomebodyLooksAtHaveAHistory(t *testing.T) {
	hs := make(Histories)
	now := time.Now()
	name := func(i int) registry.Name { return registry.Name{Name: fmt.Sprint(i)} }
	for i := range 2 * maxHistories {
		hs.Of(name(i), now.Add(time.Duration(i)*time.Second))
	}
	if len(hs) != maxHistories || hs[name(0)] != nil || hs[name(2*maxHistories-1)] == nil {
		t.Errorf("%d histories are kept, of the first: %v; want the newest %d", len(hs), hs[name(0)], maxHistories)
	}
	hs.Expire(now.Add(time.Hour))
	if len(hs) != 0 {
		t.Errorf("%d histories outlast their viewers", len(hs))
	}
}

// TestListsOfAllServicesTogetherTakeTwoPercentOfAProcessor, however many services are looked at, and what is kept of them is bounded.
func TestListsOfAllServicesTogetherTakeTwoPercentOfAProcessor(t *testing.T) {
	for _, took := range []time.Duration{time.Microsecond, 10 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var lists Lists[int]
			spent, began := time.Duration(0), time.Now()
			for i := 0; time.Since(began) < 10*time.Minute; i++ {
				lists.Of(registry.Name{Name: fmt.Sprint(i % 1000)}, func() int {
					time.Sleep(took)
					spent += took
					return i
				})
				if len(lists.of) > maxLists {
					t.Fatalf("%d lists are kept", len(lists.of))
				}
				time.Sleep(30 * time.Millisecond)
			}
			if most := time.Since(began)/MaxCost + listBurst/MaxCost + took; spent > most {
				t.Errorf("lists that take %v took %v of %v; want %v at most", took, spent, time.Since(began), most)
			}
			if took == time.Microsecond && spent < 10*time.Minute/(50*time.Millisecond)*took {
				t.Errorf("short lists took %v: they wait for each other", spent)
			}
		})
	}
}

// TestEachOfSeveralViewersGetsNewLists, also where their looks are at the same moments of each second.
func TestEachOfSeveralViewersGetsNewLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const viewers, looks, took = 8, 200, 10 * time.Millisecond
		var lists Lists[int]
		var taken [viewers]int
		next := time.Now()
		for range looks {
			for v := range viewers {
				name := registry.Name{Name: fmt.Sprint(v)}
				_, ok := lists.Of(name, func() int {
					time.Sleep(took)
					taken[v]++
					return v
				})
				if !ok && taken[v] > 0 {
					t.Fatalf("viewer %d is not shown the list of before", v)
				}
				next = next.Add(time.Second / viewers)
				time.Sleep(time.Until(next))
			}
		}
		for v, n := range taken {
			if least := int(looks*time.Second/(viewers*MaxCost*took)) / 2; n < least {
				t.Errorf("viewer %d got %d lists; want %d at least", v, n, least)
			}
		}
	})
}
