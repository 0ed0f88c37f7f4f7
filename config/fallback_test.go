package config

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/registry"
)

// saved is a fallback that has something to serve.
func saved(s step) func() (registry.Update, bool) {
	return func() (registry.Update, bool) { return s.Update, true }
}

func wantStale(t *testing.T, r *room, want bool) {
	t.Helper()
	if got := r.mux.Stale(); got != want {
		t.Errorf("stale: %v; want %v", got, want)
	}
}

func TestTheFallbackIsServedUntilTheSourceSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoomWith(t, saved(set().service("web", 1).service("dns", 1).endpoints("web", 7)), []string{"one"}, v)
		pass(maxSilence - time.Millisecond)
		v.wantBatches(t)
		wantStale(t, r, false)
		pass(time.Millisecond)
		v.wantBatches(t, "endpoints web=7, service dns=1, service web=1")
		wantStale(t, r, true)
		pass(time.Hour)
		r.send("one", set().service("web", 1).service("dns", 2).endpoints("ftp", 3))
		wantStale(t, r, false)
		if got, want := v.String(), "endpoints ftp=3, service dns=2, service web=1"; got != want {
			t.Errorf("%q in force; want what the source says: %q", got, want)
		}
		for _, batch := range v.batches[1:] {
			if strings.Contains(batch, "service web") {
				t.Errorf("batch %q tells of a service that has not changed", batch)
			}
		}
		r.send("one", set())
		if got := v.String(); got != "" {
			t.Errorf("%q in force; want nothing: the fallback came to light", got)
		}
	})
}

func TestTheFallbackIsNotReadWhenASourceSpeaksInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoomWith(t, func() (registry.Update, bool) {
			t.Error("the fallback was read")
			return registry.Update{}, false
		}, []string{"one", "two"}, v)
		pass(maxSilence - time.Millisecond)
		r.send("one", set().service("web", 1))
		pass(time.Hour)
		v.wantBatches(t, "service web=1")
	})
}

func TestWithoutAnythingSavedNothingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoomWith(t, func() (registry.Update, bool) { return registry.Update{}, false }, []string{"one"}, v)
		pass(time.Hour)
		v.wantBatches(t)
		wantStale(t, r, false)
		r.send("one", set())
		v.wantBatches(t, "")
	})
}

// What another source had said before stays until that one is given up.
func TestTheFallbackIsServedUntilNoSourceIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoomWith(t, saved(set().service("web", 1).service("dns", 1)), []string{"one", "two"}, v)
		pass(time.Hour)
		r.send("one", set().service("web", 2))
		pass(maxSilence - time.Millisecond)
		if got, want := v.String(), "service dns=1, service web=2"; got != want {
			t.Errorf("%q in force; want %q", got, want)
		}
		wantStale(t, r, true)
		pass(time.Millisecond)
		if got, want := v.String(), "service web=2"; got != want {
			t.Errorf("%q in force; want %q", got, want)
		}
		wantStale(t, r, false)
	})
}

func TestASourceThatSpeaksWhileTheFallbackIsReadWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoomWith(t, func() (registry.Update, bool) {
			time.Sleep(time.Second)
			return set().service("web", 1).Update, true
		}, []string{"one"}, v)
		pass(maxSilence + 500*time.Millisecond)
		r.send("one", set().service("web", 2))
		pass(time.Hour)
		v.wantBatches(t, "service web=2")
		wantStale(t, r, false)
	})
}

func TestServicesOfTheFallbackKeepTheirRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		web := newService("web", 1)
		web.Rank = 5
		newRoomWith(t, saved(set().withService("web", web)), []string{"one"}, v)
		pass(maxSilence)
		if got := v.services[named("web")]; got == nil || got.Rank != 5 {
			t.Errorf("%+v; want rank 5", got)
		}
	})
}

func wantPartial(t *testing.T, v *view, when string, want bool) {
	t.Helper()
	if got := v.partial.Load(); got != want {
		t.Errorf("%s: partial %t; want %t", when, got, want)
	}
}

// TestBatchesArePartialUntilEachSourceHasBeenRead: the end of that is told even if it changes no object.
func TestBatchesArePartialUntilEachSourceHasBeenRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, late, later := newView(), newView(), newView()
		r := newRoomWith(t, saved(set().service("old", 1)), []string{"one", "two"}, v)
		pass(maxSilence)
		wantPartial(t, v, "with the fallback", true)
		r.send("two", set().service("web", 2))
		wantPartial(t, v, "when one of two has been read", true)
		pass(maxSilence)
		wantStale(t, r, false)
		wantPartial(t, v, "without the fallback", true)
		r.broadcaster.Add(late)
		synctest.Wait()
		wantPartial(t, late, "for a handler that comes late", true)
		r.send("one", set())
		wantPartial(t, v, "when all have been read", false)
		wantPartial(t, late, "when all have been read, for a handler that comes late", false)
		r.broadcaster.Add(later)
		synctest.Wait()
		wantPartial(t, later, "for a handler that comes after that", false)
	})
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one", "two"}, v)
		r.send("one", set().service("web", 1))
		pass(maxSilence)
		wantPartial(t, v, "while a source is silent", true)
		close(r.sources["two"])
		synctest.Wait()
		wantPartial(t, v, "when that has closed its channel", false)
	})
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one", "two"}, v)
		v.partial.Store(true)
		r.send("one", set())
		r.send("two", set().service("web", 1))
		wantPartial(t, v, "when both speak in time", false)
	})
}

// TestTheFirstStateReplacesTheFallbackInOneStep: with its own revision, and the time at which it was received, also for what only the fallback had.
func TestTheFirstStateReplacesTheFallbackInOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches []registry.Batch
		r := newRoomWith(t, saved(set().service("old", 80)), []string{"one"}, HandlerFunc(func(b registry.Batch) { batches = append(batches, b) }))
		pass(maxSilence)
		r.broadcaster.Observe(func(Step) { time.Sleep(time.Millisecond) }) // a handler that has been told would hear of it now
		first := set().service("new", 80)
		first.Revision = 9
		r.send("one", first)
		pass(time.Second)
		if len(batches) != 2 {
			t.Fatalf("%d batches; want that of the fallback, and one more", len(batches))
		}
		b := batches[1]
		if got, want := say(b.Services, b.Endpoints), "service new=80, service old=gone"; got != want {
			t.Errorf("%q; want %q", got, want)
		}
		if b.Revision != 9 || !b.Oldest.Equal(first.Received) || b.Partial {
			t.Errorf("revision %d, oldest %v, partial %t; want 9, %v, false", b.Revision, b.Oldest, b.Partial, first.Received)
		}
	})
}
