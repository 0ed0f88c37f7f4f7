package config

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/registry"
)

// A model is the merged state done the simple way: a plain map for each source, put on top of each
// other anew after each update. It remembers every state there ever was.
type model struct {
	said     []map[string]string // by precedence: what each source says, as sayWords wants it
	complete []bool
	spoken   time.Time // when the first SET came
	states   []string  // after each update
}

func newModel(sources int) *model {
	m := &model{said: make([]map[string]string, sources), complete: make([]bool, sources)}
	for i := range m.said {
		m.said[i] = make(map[string]string)
	}
	m.remember()
	return m
}

func (m *model) remember() {
	merged := make(map[string]string)
	for _, said := range slices.Backward(m.said) {
		maps.Copy(merged, said)
	}
	m.states = append(m.states, sayWords(merged))
}

func (m *model) apply(source int, u registry.Update) {
	if u.Set {
		clear(m.said[source])
		m.complete[source] = true
		if m.spoken.IsZero() {
			m.spoken = time.Now()
		}
	}
	for _, c := range u.Services {
		m.put(u.Set, source, "service "+c.Name.String(), c.Value == nil, func() int { return int(c.Value.Ports[0].Number) })
	}
	for _, c := range u.Endpoints {
		m.put(u.Set, source, "endpoints "+c.Name.String(), c.Value == nil, func() int { return int(portOf(c.Value)) })
	}
	m.remember()
}

func (m *model) put(set bool, source int, object string, gone bool, value func() int) {
	switch {
	case !gone:
		m.said[source][object] = fmt.Sprint(value())
	case !set:
		delete(m.said[source], object)
	}
}

// open reports whether handlers may be told: all sources have spoken, or one of them has been silent for too long.
func (m *model) open() bool {
	return !slices.Contains(m.complete, false) || !m.spoken.IsZero() && time.Since(m.spoken) >= maxSilence
}

func (m *model) now() string { return m.states[len(m.states)-1] }

// A witness is a handler that holds every batch against the model.
type witness struct {
	t     *testing.T
	model *model
	rng   *rand.Rand
	view  *view
	state int       // no earlier state of the model can be seen any more
	leaps int       // batches that led past other states
	taken time.Time // when the last batch came

	partial bool // the last batch was
}

func (w *witness) OnUpdate(b registry.Batch) {
	first := len(w.view.batches) == 0
	before := w.view.String()
	for name, s := range b.Services {
		if !first && s.Equal(w.view.services[name]) {
			w.t.Errorf("service %s is in a batch though it is the same as before", name)
		}
	}
	for name, e := range b.Endpoints {
		if !first && e.Equal(w.view.endpoints[name]) {
			w.t.Errorf("endpoints %s are in a batch though they are the same as before", name)
		}
	}
	empty, ends := len(b.Services)+len(b.Endpoints) == 0, w.partial && !b.Partial
	if !first && b.Partial && !w.partial {
		w.t.Error("a batch is partial after one that is not")
	}
	w.partial = b.Partial
	if !first && !ends && empty {
		w.t.Error("an empty batch that is not the first, and not the first that is not partial")
	}
	if !first && !empty && (b.Oldest.Before(w.taken) || b.Oldest.After(time.Now())) {
		w.t.Errorf("the oldest change of a batch was received at %v, but the last batch was taken at %v", b.Oldest, w.taken)
	}
	w.taken = time.Now()
	w.view.OnUpdate(b)
	if !w.model.open() {
		w.t.Error("a batch though a source has not sent a SET")
	}
	at := slices.Index(w.model.states[w.state:], w.view.String())
	if at < 0 {
		w.t.Errorf("torn: after %q came batch %q, which gives %q; no update since then led there; the newest did to %q",
			before, say(b.Services, b.Endpoints), w.view, w.model.now())
		return
	}
	w.state += at
	if at > 1 {
		w.leaps++
	}
	time.Sleep(time.Duration(w.rng.IntN(20)) * time.Millisecond) // now and then 0
}

// Random updates from up to three sources, handlers of random slowness, some of them late, sources
// that end early: after every batch each handler knows a state that there was after some whole update,
// and never goes back to an earlier one; whenever it is quiet it knows the newest.
func TestModel(t *testing.T) {
	batches, leaps := 0, 0
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, l := runModel(t, rand.New(rand.NewPCG(seed, 0)))
				batches, leaps = batches+b, leaps+l
			})
		})
	}
	t.Logf("%d batches, %d of them with several updates in one", batches, leaps)
	if leaps < batches/10 || leaps > batches*9/10 {
		t.Error("a test that hardly ever folds, or does little else, shows little")
	}
}

func runModel(t *testing.T, rng *rand.Rand) (batches, leaps int) {
	names := []string{"top", "middle", "bottom"}[:1+rng.IntN(3)]
	model := newModel(len(names))
	var witnesses []*witness
	newWitness := func() *witness {
		w := &witness{t: t, model: model, view: newView(), rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
		witnesses = append(witnesses, w)
		return w
	}
	r := newRoom(t, names, newWitness(), newWitness())
	closed := make([]bool, len(names))
	for range 200 {
		source := rng.IntN(len(names))
		switch n := rng.IntN(200); {
		case closed[source]:
		case n == 0:
			closed[source] = true
			if !model.complete[source] { // else closing it tells no handler, and one of them may read this at any time
				model.complete[source] = true
			}
			close(r.sources[names[source]])
		case n == 1:
			r.broadcaster.Add(newWitness())
		default:
			s := randomStep(rng)
			model.apply(source, s.Update) // first, for a handler may be told while we send
			r.sources[names[source]] <- s.Update
		}
		synctest.Wait()
		switch rng.IntN(12) {
		case 0:
			pass(time.Minute)
			checkQuiet(t, model, witnesses)
		case 1, 2, 3, 4:
			pass(time.Duration(rng.IntN(15)) * time.Millisecond)
		}
		if t.Failed() {
			break
		}
	}
	for i := range names {
		if !model.complete[i] {
			model.apply(i, registry.Update{Set: true})
			r.send(names[i], step{registry.Update{Set: true, Received: time.Now()}})
		}
	}
	pass(time.Minute)
	checkQuiet(t, model, witnesses)
	for _, w := range witnesses {
		batches, leaps = batches+len(w.view.batches), leaps+w.leaps
	}
	return batches, leaps
}

func checkQuiet(t *testing.T, m *model, witnesses []*witness) {
	t.Helper()
	for i, w := range witnesses {
		switch {
		case !m.open() && len(w.view.batches) > 0:
			t.Errorf("handler %d was told something too early", i)
		case m.open() && (len(w.view.batches) == 0 || w.view.String() != m.now()):
			t.Errorf("at rest, handler %d knows %q after %d batches; the state is %q", i, w.view, len(w.view.batches), m.now())
		}
		if w.view.overlaps.Load() != 0 {
			t.Errorf("handler %d was called concurrently with itself", i)
		}
	}
}

// randomStep returns a small change most of the time, and a SET now and then. It names objects
// twice, removes unknown ones and puts a REMOVE into a SET, as no source should.
func randomStep(rng *rand.Rand) step {
	s, size := changes(), 1+rng.IntN(4)
	if rng.IntN(5) == 0 {
		s, size = set(), rng.IntN(12)
	}
	for range size {
		name, port := string('a'+rune(rng.IntN(5))), 1+rng.IntN(3)
		switch rng.IntN(6) {
		case 0:
			s = s.noService(name)
		case 1:
			s = s.noEndpoints(name)
		case 2, 3:
			s = s.service(name, port)
		default:
			s = s.endpoints(name, port)
		}
	}
	return s
}

// The same promise with nothing simulated: sources and handlers run as fast as they can. Each update of
// a source gives all of its objects the same number, so a view with two of them is torn.
func TestNoBatchSplitsAnUpdateUnderLoad(t *testing.T) {
	const updates, objects = 2000, 8
	names := []string{"one", "two", "three"}
	done := make(chan struct{})
	var running sync.WaitGroup
	b := NewBroadcaster()
	m := NewMux(b)

	words := make(map[string]string) // what all views are to end with
	for i := range objects {
		for _, name := range names {
			words[fmt.Sprintf("service %s-%d", name, i)] = fmt.Sprint(updates)
			words[fmt.Sprintf("endpoints %s-%d", name, i)] = fmt.Sprint(updates)
		}
	}
	words["service shared"] = fmt.Sprint(updates) // named by all sources, and so the first one's
	last := sayWords(words)

	var views []*view
	for i := range 3 {
		v, versions := newView(), make(map[string]int)
		rng := rand.New(rand.NewPCG(uint64(i), 0))
		finished := false
		b.Add(HandlerFunc(func(batch registry.Batch) {
			v.OnUpdate(batch)
			for _, name := range names {
				version := checkWhole(t, v, name, objects)
				if version != 0 && version < versions[name] {
					t.Errorf("%s went back from %d to %d", name, versions[name], version)
				}
				versions[name] = max(version, versions[name])
			}
			if !finished && v.String() == last {
				finished = true
				done <- struct{}{}
			}
			for range rng.IntN(50 * (i + 1)) {
				runtime.Gosched()
			}
		}))
		views = append(views, v)
	}
	for source, name := range names {
		channel := m.Channel(name)
		rng := rand.New(rand.NewPCG(uint64(source), 1))
		running.Go(func() {
			for version := 1; version <= updates; version++ {
				s := changes()
				if version == 1 || rng.IntN(10) == 0 {
					s = set()
				}
				gone := !s.Set && version < updates && rng.IntN(10) == 0
				s = s.service("shared", version)
				for i := range objects {
					object := fmt.Sprintf("%s-%d", name, i)
					if gone {
						s = s.noService(object).noEndpoints(object)
					} else {
						s = s.service(object, version).endpoints(object, version)
					}
				}
				select {
				case channel <- s.Update:
				case <-t.Context().Done():
				}
			}
		})
	}
	running.Go(func() {
		if err := m.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { // when the context of the test has ended
		running.Wait()
		for i, v := range views {
			t.Logf("handler %d: %d updates in %d batches", i, updates*len(names), len(v.batches))
			if v.overlaps.Load() != 0 {
				t.Errorf("handler %d was called concurrently with itself", i)
			}
		}
	})
	for range views {
		<-done
	}
}

// checkWhole checks that all objects of a source have one number, or that there is none of them, and
// returns that number.
func checkWhole(t *testing.T, v *view, source string, objects int) (version int) {
	numbers := make(map[int]int)
	for i := range objects {
		service, endpoints := v.services[named(fmt.Sprintf("%s-%d", source, i))], v.endpoints[named(fmt.Sprintf("%s-%d", source, i))]
		s, e := 0, 0
		if service != nil {
			s = int(service.Ports[0].Number)
		}
		if endpoints != nil {
			e = int(portOf(endpoints))
		}
		numbers[s]++
		numbers[e]++
	}
	if len(numbers) != 1 {
		t.Errorf("torn: objects of %s by number: %v", source, numbers)
		return 0
	}
	for version = range numbers {
	}
	return version
}
