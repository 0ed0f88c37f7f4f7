package config

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/registry"
)

// busyView returns a handler that is at work for a minute with each batch.
func busyView() *view {
	v := newView()
	v.during = func() { time.Sleep(time.Minute) }
	return v
}

func TestNewestValueWinsWhileHandlersAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := busyView()
		r := newRoom(t, []string{"one"}, v)
		r.send("one", set().service("web", 80))
		for port := range 1000 {
			r.send("one", changes().service("web", 1+port).endpoints("web", 1+port))
		}
		pass(time.Hour)
		v.wantBatches(t, "service web=80", "endpoints web=1000, service web=1000")
	})
}

func TestPendingIsWhatHandlersWereNotGivenYet(t *testing.T) {
	for _, c := range []struct {
		name  string
		given step // what the handlers know
		then  []step
		want  []string
	}{
		{"a removal cancels what they never heard of", set(),
			[]step{changes().service("web", 80), changes().noService("web")}, nil},
		{"but only that", set(),
			[]step{changes().service("web", 80).endpoints("web", 1), changes().noService("web")}, []string{"endpoints web=1"}},
		{"it does not cancel what they know", set().service("web", 80),
			[]step{changes().service("web", 81), changes().noService("web")}, []string{"service web=gone"}},
		{"a removal and then another value", set().service("web", 80),
			[]step{changes().noService("web"), changes().service("web", 81)}, []string{"service web=81"}},
		{"a removal and then the same value", set().service("web", 80),
			[]step{changes().noService("web"), changes().service("web", 80)}, nil},
		{"another value, and back", set().service("web", 80),
			[]step{changes().service("web", 81), changes().service("web", 80)}, nil},
		{"added, removed, added", set(),
			[]step{changes().service("web", 80), changes().noService("web"), changes().service("web", 81)}, []string{"service web=81"}},
		{"removed, added, removed", set().service("web", 80),
			[]step{changes().noService("web"), changes().service("web", 81), changes().noService("web")}, []string{"service web=gone"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := busyView()
				r := newRoom(t, []string{"one"}, v)
				r.send("one", c.given)
				v.batches = nil
				for _, s := range c.then {
					r.send("one", s)
				}
				pass(time.Hour)
				v.wantBatches(t, c.want...)

				// What they know now decides about the next round.
				r.send("one", set().service("last", 1))
				pass(time.Hour)
				if got, want := v.String(), "service last=1"; got != want {
					t.Errorf("in the end %q, want %q", got, want)
				}
			})
		})
	}
}

// What comes to light when a source lets go, or what it lays itself in front of, is what the handlers
// know as much as anything that was said just now.
func TestWhatAnotherSourceSaysCancelsToo(t *testing.T) {
	for _, c := range []struct {
		name        string
		top, bottom step // what the handlers know
		then        []step
		want        []string
	}{
		{"in front of it, and gone again", set(), set().service("web", 80),
			[]step{changes().service("web", 81), changes().noService("web")}, nil},
		{"out of the way, and back", set().service("web", 80), set().service("web", 81),
			[]step{changes().noService("web"), changes().service("web", 80)}, nil},
		{"out of the way of the same value", set().service("web", 80), set().service("web", 80),
			[]step{changes().service("web", 81), changes().noService("web")}, nil},
		{"out of the way for good", set().service("web", 80), set().service("web", 81),
			[]step{changes().service("web", 82), changes().noService("web")}, []string{"service web=81"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := busyView()
				r := newRoom(t, []string{"top", "bottom"}, v)
				r.send("top", c.top)
				r.send("bottom", c.bottom)
				v.batches = nil
				for _, s := range c.then {
					r.send("top", s)
				}
				pass(time.Hour)
				v.wantBatches(t, c.want...)
			})
		})
	}
}

func TestRecreatedServiceIsAChangeThoughItLooksTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := busyView()
		r := newRoom(t, []string{"one"}, v)
		before, after := newService("web", 80), newService("web", 80)
		before.Created, after.Created = 7, 9
		r.send("one", set().withService("web", before))
		r.send("one", changes().noService("web"))
		r.send("one", changes().withService("web", after))
		pass(time.Hour)
		v.wantBatches(t, "service web=80", "service web=80")
		if got := v.services[named("web")]; got != after {
			t.Errorf("the handler has the service created at %d", got.Created)
		}
	})
}

func TestOldestIsWhenTheOldestOfItsChangesWasReceived(t *testing.T) {
	at := func(second int, s step) step {
		s.Received = time.Unix(int64(second), 0)
		return s
	}
	for _, c := range []struct {
		name string
		then []step
		want []int
	}{
		{"one change", []step{at(5, changes().service("web", 81))}, []int{5}},
		{"folded into a newer one", []step{at(5, changes().service("web", 81)), at(6, changes().service("web", 82))}, []int{5}},
		{"heard of in another order", []step{at(6, changes().service("web", 81)), at(5, changes().service("web", 82))}, []int{5}},
		{"of several objects", []step{at(6, changes().service("db", 1)), at(5, changes().endpoints("db", 1)), at(7, changes().noService("web"))}, []int{5}},
		{"what was undone does not count", []step{at(5, changes().service("db", 1)), at(6, changes().service("web", 81)), at(7, changes().noService("db"))}, []int{6}},
		{"undone and done again", []step{at(5, changes().service("db", 1)), at(6, changes().noService("db")), at(7, changes().service("db", 1))}, []int{7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := busyView()
				r := newRoom(t, []string{"one"}, v)
				r.send("one", at(1, set()))
				r.send("one", at(2, changes().service("web", 80)))
				pass(time.Hour)
				v.oldest = nil
				r.send("one", at(3, changes().service("busy", 1))) // a batch for the handler to be busy with
				for _, s := range c.then {
					r.send("one", s)
				}
				pass(time.Hour)
				got := []int{}
				for _, oldest := range v.oldest {
					got = append(got, int(oldest.Unix()))
				}
				if want := append([]int{3}, c.want...); !slices.Equal(got, want) {
					t.Errorf("oldest %v, want %v", got, want)
				}
			})
		})
	}
}

func TestFirstBatchIsAsOldAsTheOldestChangeOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, late := newView(), newView()
		r := newRoom(t, []string{"one"}, v)
		r.send("one", changes().noService("web")) // which changes nothing
		pass(time.Second)
		start := time.Now()
		r.send("one", changes().service("web", 80))
		pass(time.Second)
		r.send("one", set().service("db", 1))
		pass(time.Hour)
		r.broadcaster.Add(late)
		synctest.Wait()
		for _, v := range []*view{v, late} {
			if len(v.oldest) != 1 || !v.oldest[0].Equal(start) {
				t.Errorf("oldest %v, want %v", v.oldest, start)
			}
		}
	})
}

func TestABatchBelongsToItsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept []registry.Batch
		r := newRoom(t, []string{"one"}, HandlerFunc(func(b registry.Batch) { kept = append(kept, b) }))
		r.send("one", set().service("web", 80))
		r.send("one", changes().service("web", 81).endpoints("web", 1))
		r.send("one", changes().noService("web"))
		for i, want := range []string{"service web=80", "endpoints web=1, service web=81", "service web=gone"} {
			if got := say(kept[i].Services, kept[i].Endpoints); got != want {
				t.Errorf("batch %d is now %q, want %q", i, got, want)
			}
		}
	})
}

// Handlers do not hear of objects that have gone again, so nothing may be kept of them. And a queue holds
// nothing at all when its handlers know everything: only the store does.
func TestMemoryIsBoundedByTheNumberOfObjects(t *testing.T) {
	p := newPlant(100)
	for i := range 10_000 {
		if _, ok := p.change(i%100, 1+i/100%2); !ok {
			t.Fatal("no change")
		}
		p.mux.merge(0, p.mux.sources[0], changes().service("passing", 1+i).Update)
		p.mux.merge(0, p.mux.sources[0], changes().noService("passing").Update)
		if n := len(p.queue.wake); n > 1 {
			t.Fatalf("%d wake-ups", n)
		}
	}
	for i, n := range []int{
		len(p.mux.broadcaster.store.services.layers[0].said),
		len(p.mux.broadcaster.store.endpoints.layers[0].said),
	} {
		if n != 100 {
			t.Errorf("place %d holds %d entries for 100 objects", i, n)
		}
	}
	if n := len(p.queue.backlog.services.pending) + len(p.queue.backlog.endpoints.pending); n != 0 {
		t.Errorf("a queue whose handlers know everything holds %d entries", n)
	}
}
