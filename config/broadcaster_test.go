package config

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/registry"
)

// D8: in v0.4 sources ran before the handlers were there, and what had come by then was lost for them.
func TestLateAddFirstGetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early, late := newView(), newView()
		r := newRoom(t, []string{"one"}, early)
		r.send("one", set().service("web", 80).service("db", 1).endpoints("web", 1))
		r.send("one", changes().service("web", 81).noService("db"))
		r.broadcaster.Add(late)
		synctest.Wait()
		late.wantBatches(t, "endpoints web=1, service web=81")
		r.send("one", changes().noService("web"))
		late.wantBatches(t, "service web=gone")
		if early.String() != late.String() {
			t.Errorf("the early handler knows %q, the late one %q", early, late)
		}
	})
}

func TestLateAddGetsEachObjectFromItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := newView()
		r := newRoom(t, []string{"top", "middle", "bottom"})
		r.send("bottom", set().service("web", 3).service("dns", 3).endpoints("web", 3))
		r.send("middle", set().service("web", 2).service("db", 2))
		r.send("top", set().service("db", 1))
		r.broadcaster.Add(late)
		synctest.Wait()
		late.wantBatches(t, "endpoints web=3, service db=1, service dns=3, service web=2")
		r.send("middle", set())
		late.wantBatches(t, "service web=3")
	})
}

// Until its first batch is taken, handlers know nothing: whatever goes by then never was, for them.
func TestFirstBatchHasTheStateAsItIsWhenTaken(t *testing.T) {
	p := newPlant(3)
	b := p.mux.broadcaster
	b.Add(newView())
	late := b.queues[1]
	p.mux.merge(0, p.mux.sources[0], changes().noService("service-0").service("service-1", 2).noEndpoints("service-1").Update)
	want := "endpoints service-0=1, endpoints service-2=1, service service-1=2, service service-2=1"
	if batch, ok := late.take(); !ok || say(batch.Services, batch.Endpoints) != want {
		t.Errorf("first batch %q, want %q", say(batch.Services, batch.Endpoints), want)
	}
	want = "endpoints service-1=gone, service service-0=gone, service service-1=2"
	if batch, ok := p.queue.take(); !ok || say(batch.Services, batch.Endpoints) != want {
		t.Errorf("the other queue's batch is %q, want %q", say(batch.Services, batch.Endpoints), want)
	}
}

// Nothing is simulated here: handlers are added while a source says what it can. Each of its updates
// gives both objects the same number.
func TestAddMayComeAtAnyTime(t *testing.T) {
	const updates, handlers = 1000, 50
	b := NewBroadcaster()
	var running, told sync.WaitGroup
	told.Add(handlers)
	add := func() {
		v := newView()
		b.Add(HandlerFunc(func(batch registry.Batch) {
			v.OnUpdate(batch)
			var number, port uint16
			if s, e := v.services[named("web")], v.endpoints[named("web")]; s != nil && e != nil {
				number, port = s.Ports[0].Number, portOf(e)
			}
			if number == 0 || number != port {
				t.Errorf("torn, or not everything: %s", v)
			}
			if number == updates {
				told.Done()
			}
		}))
	}
	add() // even before there is a mux
	m := NewMux(b)
	channel := m.Channel("one")
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() {
		for range handlers - 1 {
			add()
			runtime.Gosched()
		}
	})
	running.Go(func() {
		for n := 1; n <= updates; n++ {
			s := changes()
			if n%100 == 1 {
				s = set()
			}
			channel <- s.service("web", n).endpoints("web", n).Update
		}
	})
	running.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	told.Wait()
	cancel()
	running.Wait()
}

func TestLateAddIsToldOfAnEmptyState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := newView()
		r := newRoom(t, []string{"one"})
		r.send("one", set().service("web", 80))
		r.send("one", set())
		r.broadcaster.Add(late)
		synctest.Wait()
		late.wantBatches(t, "")
	})
}

func TestAddBeforeTheFirstSetWaitsLikeTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early, late := newView(), newView()
		r := newRoom(t, []string{"one"}, early)
		r.send("one", changes().service("web", 80))
		r.broadcaster.Add(late)
		pass(time.Hour)
		late.wantBatches(t)
		r.send("one", set().service("web", 80).endpoints("web", 1))
		for _, v := range []*view{early, late} {
			v.wantBatches(t, "endpoints web=1, service web=80")
		}
	})
}

func TestAHandlerMayAddAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newView(), newView()
		r := newRoom(t, []string{"one"}, first)
		first.during = func() {
			if len(first.batches) == 1 {
				r.broadcaster.Add(second)
			}
		}
		r.send("one", set().service("web", 80))
		second.wantBatches(t, "service web=80")
	})
}

func TestHandlersOfOneQueueGetEachBatchInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		handler := func(name string) Handler {
			return HandlerFunc(func(b registry.Batch) {
				time.Sleep(time.Second)
				calls = append(calls, name+": "+say(b.Services, b.Endpoints))
			})
		}
		b := NewBroadcaster()
		hs := []Handler{handler("balancer"), handler("proxier")}
		b.Add(hs...)
		hs[1] = nil // the slice is ours to use again
		m := NewMux(b)
		updates := m.Channel("one")
		go m.Run(t.Context())
		updates <- set().service("web", 80).Update
		synctest.Wait()
		updates <- changes().service("web", 81).Update
		pass(time.Hour)
		want := []string{"balancer: service web=80", "proxier: service web=80", "balancer: service web=81", "proxier: service web=81"}
		if !slices.Equal(calls, want) {
			t.Errorf("%q, want %q", calls, want)
		}
	})
}

// D27: in v0.4 a slow handler held up the other handlers, the sources, and finally the watch.
func TestSlowQueueDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := newView(), newView()
		stuck := make(chan struct{})
		slow.during = func() { <-stuck }
		r := newRoom(t, []string{"one", "two"}, slow, quick)
		start := time.Now()
		r.send("one", set())
		r.send("two", set())
		want := []string{""}
		for i := range 50 {
			r.send("one", changes().endpoints("web", 1+i))
			r.send("two", changes().endpoints("db", 1+i))
			want = append(want, fmt.Sprintf("endpoints web=%d", 1+i), fmt.Sprintf("endpoints db=%d", 1+i))
		}
		if time.Since(start) != 0 {
			t.Error("somebody had to wait")
		}
		quick.wantBatches(t, want...)
		slow.wantBatches(t, "")
		close(stuck)
		synctest.Wait()
		slow.wantBatches(t, "endpoints db=50, endpoints web=50")
		if slow.overlaps.Load() != 0 {
			t.Error("a handler was called concurrently with itself")
		}
	})
}
