package config

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/glog"
	"github.com/google/go-cmp/cmp"

	"kubeproxy/registry"
)

// The tests whose names begin with TestOld show, in our form, what v0.4's own tests of its mux, its
// watcher and its two stores showed.

func TestOldSameNameGivesTheSameChannel(t *testing.T) {
	m := NewMux(NewBroadcaster())
	one, two := m.Channel("one"), m.Channel("two")
	if one == two {
		t.Error("two names share one channel")
	}
	if m.Channel("one") != one || m.Channel("two") != two {
		t.Error("the same name gives another channel")
	}
}

func TestOldUpdateIsMergedUnchangedUnderItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one", "two"}, v)
		web := newService("web", 80)
		r.send("one", set())
		r.send("two", set().withService("web", web))
		if got := v.services[named("web")]; !got.Equal(web) {
			t.Errorf("the handler was given %+v, and not what was sent, %+v", got, web)
		}
		r.send("one", changes().noService("web"))
		v.wantBatches(t, "service web=80") // it was another source's, so that was not its to remove
		r.send("two", changes().noService("web"))
		v.wantBatches(t, "service web=gone")
	})
}

func TestOldPlainFunctionCanServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got string
		r := newRoom(t, []string{"one"}, HandlerFunc(func(b registry.Batch) { got = say(b.Services, b.Endpoints) }))
		r.send("one", set().service("web", 80))
		if want := "service web=80"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestOldTwoSourcesAtTheSameTimeAreBothMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one", "two"}, v)
		go func() { r.sources["one"] <- set().service("web", 80).Update }()
		go func() { r.sources["two"] <- set().service("db", 5432).Update }()
		synctest.Wait()
		v.wantBatches(t, "service db=5432, service web=80")
	})
}

func TestOldEachHandlerIsToldExactlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newRoom(t, []string{"one"}).send("one", set().service("web", 80)) // no handler: harmless

		a, b := newView(), newView()
		r := newRoom(t, []string{"one"}, a, b)
		r.send("one", set().service("web", 80))
		a.wantBatches(t, "service web=80")
		b.wantBatches(t, "service web=80")
	})
}

func TestOldOneAddedServiceIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one"}, v)
		r.send("one", set())
		v.wantBatches(t, "")
		r.send("one", changes().service("web", 80))
		v.wantBatches(t, "service web=80")
	})
}

func TestOldAddAddRemoveSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one"}, v)
		r.send("one", set())
		for _, c := range []struct {
			step        step
			batch, then string
		}{
			{changes().service("foo", 10), "service foo=10", "service foo=10"},
			{changes().service("bar", 20), "service bar=20", "service bar=20, service foo=10"},
			{changes().noService("foo"), "service foo=gone", "service bar=20"},
			{set().service("baz", 30), "service bar=gone, service baz=30", "service baz=30"},
		} {
			v.batches = nil
			r.send("one", c.step)
			v.wantBatches(t, c.batch)
			if got := v.String(); got != c.then {
				t.Errorf("then %q, want %q", got, c.then)
			}
		}
	})
}

func TestOldTwoSourcesTellOfTheirServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newView(), newView()
		r := newRoom(t, []string{"one", "two"}, a, b)
		r.send("one", set())
		r.send("two", set())
		r.send("one", changes().service("foo", 10))
		r.send("two", changes().service("bar", 20))
		for _, v := range []*view{a, b} {
			v.wantBatches(t, "", "service foo=10", "service bar=20")
			if got, want := v.String(), "service bar=20, service foo=10"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
}

func TestOldTwoSourcesTellOfTheirEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newView(), newView()
		r := newRoom(t, []string{"one", "two"}, a, b)
		r.send("one", set())
		r.send("two", set())
		r.send("one", changes().endpoints("foo", 1))
		r.send("two", changes().endpoints("bar", 2))
		for _, v := range []*view{a, b} {
			if got, want := v.String(), "endpoints bar=2, endpoints foo=1"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
}

func TestOldEndpointsAreAddedReplacedAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newView(), newView()
		r := newRoom(t, []string{"one", "two"}, a, b)
		r.send("one", set().endpoints("foo", 1))
		r.send("two", set().endpoints("bar", 2))
		r.send("one", changes().endpoints("foobar", 3))
		r.send("one", changes().endpoints("foo", 4))
		r.send("two", changes().noEndpoints("bar"))
		for _, v := range []*view{a, b} {
			v.wantBatches(t, "endpoints bar=2, endpoints foo=1", "endpoints foobar=3", "endpoints foo=4", "endpoints bar=gone")
			if got, want := v.String(), "endpoints foo=4, endpoints foobar=3"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
}

func TestNothingIsToldBeforeEverySourceHasSentASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one", "two"}, v)
		r.send("one", set().service("web", 80))
		r.send("one", changes().service("web", 81).service("db", 1))
		r.send("one", changes().noService("db"))
		r.send("two", changes().service("dns", 53).service("ftp", 21)) // no SET yet
		r.send("one", set().service("web", 82))                        // another SET, but not of the other one
		pass(maxSilence - time.Millisecond)
		v.wantBatches(t)
		r.send("two", set().service("dns", 53)) // all it has to say: no ftp
		v.wantBatches(t, "service dns=53, service web=82")
	})
}

func TestASilentSourceHoldsUpTheOthersForThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"first", "second"}, v)
		pass(time.Hour) // without any source there is nothing to serve
		v.wantBatches(t)
		r.send("second", set().service("web", 2).service("dns", 2))
		pass(maxSilence - time.Millisecond)
		v.wantBatches(t)
		r.send("second", changes().service("dns", 3))
		v.wantBatches(t)
		r.send("second", changes().service("dns", 4))
		pass(time.Millisecond)
		v.wantBatches(t, "service dns=4, service web=2")
		r.send("first", set().service("web", 1)) // which comes first, however late
		v.wantBatches(t, "service web=1")
	})
}

// Who takes over with less than all would close the ports of the others.
func TestNoSourceIsPassedOverWhileAnotherProcessServesIt(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			v := newView()
			r := newRoomWith(t, saved(set().service("old", 1)), []string{"first", "second"}, v)
			r.served.Store(true)
			pass(time.Hour)
			r.send("second", set().service("web", 2))
			pass(time.Hour)
			v.wantBatches(t)
			if ends {
				r.served.Store(false)
				pass(time.Second)
				v.wantBatches(t, "service web=2")
				return
			}
			r.send("first", set().service("web", 1).service("dns", 1))
			v.wantBatches(t, "service dns=1, service web=1")
		})
	}
}

func TestASourceThatSpeaksInTimeIsInTheFirstBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"first", "second"}, v)
		r.send("second", set().service("web", 2))
		pass(maxSilence - time.Millisecond)
		r.send("first", set().service("web", 1))
		v.wantBatches(t, "service web=1")
		pass(time.Hour)
		v.wantBatches(t)
	})
}

// Revisions of two registries cannot be compared: so a service says whose it is.
func TestEachServiceHasTheRankOfItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"first", "second"}, v)
		mine, others := newService("web", 1), newService("dns", 2)
		r.send("first", set().withService("web", mine))
		for range 2 { // a source repeats itself
			r.send("second", set().withService("dns", others).service("web", 2))
		}
		v.wantBatches(t, "service dns=2, service web=1")
		if got := v.services[named("web")]; got != mine || got.Rank != 0 {
			t.Errorf("the first source's: %+v; want the very value, of rank 0", got)
		}
		if got := v.services[named("dns")]; got.Rank != 1 || others.Rank != 0 {
			t.Errorf("the second source's: %+v, and the source has %+v; want rank 1, and the value of the source untouched", got, others)
		}
		r.send("first", set())
		v.wantBatches(t, "service web=2")
		if got := v.services[named("web")]; got.Rank != 1 {
			t.Errorf("what came to light: %+v; want rank 1", got)
		}
	})
}

func TestFirstBatchIsDeliveredEvenWhenEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one"}, v)
		v.wantBatches(t)
		r.send("one", set())
		if len(v.oldest) == 1 && !v.oldest[0].IsZero() {
			t.Errorf("a batch without changes says that the oldest is of %v", v.oldest[0])
		}
		v.wantBatches(t, "")
		r.send("one", set())
		v.wantBatches(t) // only the first
	})
}

func TestMuxWithoutSourcesWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		newRoom(t, nil, v)
		v.wantBatches(t, "")
	})
}

// D26: in v0.4 a closed channel kept a processor busy for ever. Here that would also keep
// synctest.Wait from ever returning.
func TestClosedChannelEndsASourceButNotWhatItSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one", "two"}, v)
		r.send("one", set().service("web", 80))
		r.send("two", set().service("web", 81).service("db", 1))
		v.batches = nil
		close(r.sources["one"])
		synctest.Wait()
		v.wantBatches(t)
		r.send("two", changes().service("web", 82).service("db", 2))
		v.wantBatches(t, "service db=2") // web goes on belonging to the first
	})
}

func TestSourceThatClosesBeforeItsSetIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one", "two"}, v)
		r.send("one", changes().service("web", 80))
		r.send("two", set().service("db", 1))
		v.wantBatches(t)
		close(r.sources["one"])
		synctest.Wait()
		v.wantBatches(t, "service db=1, service web=80")
	})
}

func TestRunReturnsOnceTheBatchUnderWayIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, next := newView(), newView()
		slow.during = func() { time.Sleep(time.Minute) }
		b := NewBroadcaster()
		b.Add(slow, next)
		m := NewMux(b)
		updates := m.Channel("one")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var returned atomic.Bool
		go func() {
			if err := m.Run(ctx); err != nil {
				t.Errorf("a clean stop is an error: %v", err)
			}
			returned.Store(true)
		}()
		updates <- set().service("web", 80).Update
		synctest.Wait() // slow is in its OnUpdate
		updates <- changes().service("web", 81).Update
		cancel()
		synctest.Wait()
		if returned.Load() {
			t.Fatal("Run returned while a handler was at work")
		}
		pass(time.Hour)
		if !returned.Load() {
			t.Fatal("Run did not return")
		}
		slow.wantBatches(t, "service web=80") // no other one was begun
		next.wantBatches(t, "service web=80") // and this one was brought to its end

		late := newView()
		b.Add(late) // nothing delivers any more
		synctest.Wait()
		late.wantBatches(t)
	})
}

func TestRunLeavesNothingRunning(t *testing.T) {
	m := NewMux(NewBroadcaster())
	updates := m.Channel("one")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	updates <- registry.Update{} // Run has begun, and this takes no lock of the mux
	m.mu.Lock()
	updates <- set().Update // which the mux cannot be done with as long as we have the lock
	cancel()
	select {
	case <-returned:
		t.Error("Run returned though an update was being merged")
	case <-time.After(20 * time.Millisecond): // wrong code has had its chance by now; right code cannot fail
	}
	m.mu.Unlock()
	<-returned
}

func TestSourceIsFreeToGoWhenRunHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMux(NewBroadcaster())
		updates := m.Channel("one")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Run(ctx); err != nil {
			t.Fatal(err)
		}
		select { // as the documentation tells sources to do it
		case updates <- set().Update:
			t.Error("somebody received it")
		case <-ctx.Done():
		}
	})
}

func TestMistakesOfTheProgramAreToldAtOnce(t *testing.T) {
	panics := func(f func()) (caught bool) {
		defer func() { caught = recover() != nil }()
		f()
		return false
	}
	m := NewMux(NewBroadcaster())
	one := m.Channel("one")
	if !panics(func() { m.Channel("") }) {
		t.Error("a source without a name was taken")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := m.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := m.Run(ctx); err == nil {
		t.Error("the mux ran twice")
	}
	if !panics(func() { m.Channel("two") }) {
		t.Error("a source was taken that nobody listens to")
	}
	if m.Channel("one") != one {
		t.Error("the same name gives another channel")
	}
}

// With -v=4 the log tells the story: what came, at V(4), and what was made of it, at V(3). What came
// from the registry is shown quoted if it is not plain (D47).
func TestLogNarratesWhatIsDecided(t *testing.T) {
	glog.Flush()
	before := len(readLog(t))
	flag.Set("v", "4")
	defer flag.Set("v", "0")
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, []string{"static", "etcd"})
		first := set().service("web", 80).endpoints("web", 1)
		first.Revision = 42
		r.send("etcd", first)
		r.send("static", set().service("web", 81))
		r.send("etcd", changes().noService("web").service("a\nb", 1))
	})
	flag.Set("v", "0")
	glog.Flush()
	var got []string
	for line := range strings.Lines(readLog(t)[before:]) {
		_, text, _ := strings.Cut(line, "] ")
		got = append(got, strings.TrimSuffix(text, "\n"))
	}
	want := []string{
		"etcd: SET @42: 1 services, 1 endpoints",
		"etcd: service web added",
		"etcd: endpoints web added",
		"static: SET @0: 1 services, 0 endpoints",
		"static: service web added, in front of etcd",
		"etcd: changes @0: 2 services, 0 endpoints",
		"etcd: service web removed, in the shadow of static",
		`etcd: service "a\nb" added`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// readLog returns all that was logged so far, and nothing if nothing was.
func readLog(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(logs, "*.INFO"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	return text.String()
}
