package config

import (
	"testing"
	"testing/synctest"

	"kubeproxy/registry"
)

// D28: v0.4 gave out the objects of all sources one after the other, in the random order of a map,
// and left it to each handler which of two of the same name it took.
func TestEarlierSourceOwnsAnObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"top", "middle", "bottom"}, v)
		for source := range r.sources {
			r.send(source, set())
		}
		v.wantBatches(t, "")
		for _, c := range []struct {
			what   string
			source string
			step   step
			want   []string
		}{
			{"the lowest has it alone", "bottom", changes().service("web", 3), []string{"service web=3"}},
			{"a higher one takes it", "top", changes().service("web", 1), []string{"service web=1"}},
			{"between them is shadow", "middle", changes().service("web", 2), nil},
			{"a change in the shadow", "bottom", changes().service("web", 33), nil},
			{"the other kind is another object", "bottom", changes().endpoints("web", 3), []string{"endpoints web=3"}},
			{"the next one takes over", "top", changes().noService("web"), []string{"service web=2"}},
			{"by a SET too", "middle", set(), []string{"service web=33"}},
			{"and it comes back the same way", "middle", set().service("web", 2), []string{"service web=2"}},
			{"removed in the shadow", "bottom", changes().noService("web"), nil},
			{"now nobody takes over", "middle", changes().noService("web"), []string{"service web=gone"}},
			{"equal above", "top", changes().endpoints("web", 3), nil},
			{"and equal below", "top", changes().noEndpoints("web"), nil},
		} {
			r.send(c.source, c.step)
			t.Log(c.what)
			v.wantBatches(t, c.want...)
		}
	})
}

func TestSetBecomesPlainChanges(t *testing.T) {
	same := newService("same", 1)
	for _, c := range []struct {
		name string
		step step
		want []string
	}{
		{"the very same values", set().withService("same", same).service("like", 2).endpoints("same", 9), nil},
		{"everything equal", set().service("same", 1).service("like", 2).endpoints("same", 9), nil},
		{"in another order", set().service("like", 2).service("same", 1).endpoints("same", 9), nil},
		{"one changed", set().withService("same", same).service("like", 3).endpoints("same", 9), []string{"service like=3"}},
		{"one less, one more", set().withService("same", same).service("new", 4).endpoints("same", 9), []string{"service like=gone, service new=4"}},
		{"a kind less", set().withService("same", same).service("like", 2), []string{"endpoints same=gone"}},
		{"nothing", set(), []string{"endpoints same=gone, service like=gone, service same=gone"}},
		{"named twice: the last counts", set().withService("same", same).service("like", 5).service("like", 2).endpoints("same", 9), nil},
		{"named twice, and one missing", set().withService("same", same).withService("same", same).endpoints("same", 9), []string{"service like=gone"}},
		{"a REMOVE in it is not there", set().withService("same", same).noService("like").noEndpoints("same").noService("what"), []string{"endpoints same=gone, service like=gone"}},
		{"beside a value too", set().withService("same", same).service("like", 2).noService("like").endpoints("same", 9), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newView()
				r := newRoom(t, []string{"one"}, v)
				r.send("one", set())
				r.send("one", changes().withService("same", same).service("like", 2).endpoints("same", 9))
				v.batches = nil
				r.send("one", c.step)
				v.wantBatches(t, c.want...)
				r.send("one", c.step) // said again, it is nothing new
				v.wantBatches(t)
			})
		})
	}
}

// D9: v0.4 never sent an empty SET, so its resync could not remove the last service.
func TestEmptySetRemovesAllThatItsSourceSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one", "two"}, v)
		r.send("one", set().service("web", 80).endpoints("web", 1))
		r.send("two", set().service("db", 1))
		v.batches = nil
		r.send("one", set())
		v.wantBatches(t, "endpoints web=gone, service web=gone")
		if got, want := v.String(), "service db=1"; got != want {
			t.Errorf("left is %q, want %q", got, want)
		}
	})
}

func TestUpdateThatChangesNothingYieldsNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		r := newRoom(t, []string{"one"}, v)
		r.send("one", set().service("web", 80).endpoints("web", 1))
		v.batches = nil
		for _, s := range []step{
			set().service("web", 80).endpoints("web", 1),
			changes().service("web", 80),
			changes().endpoints("web", 1),
			changes().noService("unknown").noEndpoints("unknown"),
			changes(),
			changes().service("web", 81).service("web", 80),
			changes().noService("web").service("web", 80),
			changes().service("new", 1).noService("new"),
		} {
			r.send("one", s)
			v.wantBatches(t)
		}
	})
}

func TestWhatAChangeCostsDoesNotDependOnWhatThereIs(t *testing.T) {
	cost := func(objects int) float64 {
		p := newPlant(objects)
		i := 0
		return testing.AllocsPerRun(100, func() {
			p.change(i%objects, 1+i/objects%2)
			i++
		})
	}
	if small, large := cost(10), cost(10_000); small != large {
		t.Errorf("a change costs %v allocations among 10 services, and %v among 10,000", small, large)
	}
}

func TestTheSameSetCostsNoMemory(t *testing.T) {
	p := newPlant(1000)
	if n := testing.AllocsPerRun(10, func() { p.mux.merge(0, p.mux.sources[0], p.all) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if batch, ok := p.queue.take(); ok {
		t.Errorf("a batch: %s", say(batch.Services, batch.Endpoints))
	}
}

func TestDecisionsInWords(t *testing.T) {
	old, young := new(registry.Service), new(registry.Service)
	for _, c := range []struct {
		before, after *registry.Service
		above, below  string
		want          string
	}{
		{nil, young, "", "", "added"},
		{old, young, "", "", "changed"},
		{old, nil, "", "", "removed"},
		{nil, young, "", "etcd", "added, in front of etcd"},
		{old, young, "", "etcd", "changed"},
		{old, nil, "", "etcd", "removed; etcd takes over"},
		{nil, young, "static", "etcd", "added, in the shadow of static"},
		{old, nil, "static", "", "removed, in the shadow of static"},
	} {
		if got := decision(c.before, c.after, c.above, c.below); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
