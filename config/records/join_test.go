package records

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

var (
	ends     = recordstest.Ends
	addrs    = recordstest.Addrs
	sliceKey = recordstest.SliceKey
	slice    = recordstest.Slice
)

// endpointsText takes out all changes and gives the endpoints in force: "a:[10.0.0.1:80]".
func (r *State) endpointsText() string {
	r.changes()
	return textOf(r.endpoints)
}

func textOf(endpoints map[registry.Name]*registry.Endpoints) string {
	var all []string
	for _, name := range slices.SortedFunc(maps.Keys(endpoints), registry.Name.Compare) {
		text := name.String() + ":"
		for _, p := range endpoints[name].ByPort {
			text += p.Port + p.Addrs.String()
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestSlicesComeBeforeTheRecordOfEndpoints(t *testing.T) {
	type step = func(*State)
	put := func(key, value string) step {
		return func(s *State) { s.Put(Version{Key: []byte(key), Value: []byte(value), Created: 2, Revision: 2}) }
	}
	remove := func(key string) step { return func(s *State) { s.Remove([]byte(key)) } }
	record := put(ends("a"), addrs("10.0.0.9:1"))
	one, two := put(sliceKey("1"), slice("a", "10.0.0.1:1")), put(sliceKey("2"), slice("a", "10.0.0.2:1"))
	for _, test := range []struct {
		name  string
		steps []step
		want  string
	}{
		{"the record alone", []step{record}, "a:[10.0.0.9:1]"},
		{"a slice alone", []step{one}, "a:[10.0.0.1:1]"},
		{"two slices", []step{two, one}, "a:[10.0.0.1:1 10.0.0.2:1]"},
		{"a slice, and then the record", []step{one, record}, "a:[10.0.0.1:1]"},
		{"the record, and then a slice", []step{record, one}, "a:[10.0.0.1:1]"},
		{"a slice without endpoints", []step{record, put(sliceKey("1"), slice("a"))}, "a:"},
		{"one of two slices goes", []step{record, one, two, remove(sliceKey("1"))}, "a:[10.0.0.2:1]"},
		{"the last slice goes", []step{record, one, two, remove(sliceKey("1")), remove(sliceKey("2"))}, "a:[10.0.0.9:1]"},
		{"the last slice goes, and there is no record", []step{one, remove(sliceKey("1"))}, ""},
		{"a bad value keeps the last good one", []step{record, one, put(sliceKey("1"), "{")}, "a:[10.0.0.1:1]"},
		{"a bad value of one slice hurts no other", []step{one, two, put(sliceKey("1"), "{")}, "a:[10.0.0.1:1 10.0.0.2:1]"},
		{"a slice that never was good", []step{record, put(sliceKey("1"), "{")}, "a:[10.0.0.9:1]"},
		{"a slice moves to another service", []step{record, one, two, put(sliceKey("1"), slice("b", "10.0.0.1:1"))}, "a:[10.0.0.2:1] b:[10.0.0.1:1]"},
		{"the only slice moves, and back", []step{record, one, put(sliceKey("1"), slice("b", "10.0.0.1:1")), one}, "a:[10.0.0.1:1]"},
		{"a slice in another namespace", []step{record, put(registry.EndpointSlicesPrefix+"prod/1", slice("a", "10.0.0.1:1"))}, "a:[10.0.0.9:1] prod/a:[10.0.0.1:1]"},
		{"a slice of a headless service", []step{record, put(sliceKey("1"), `{"metadata":{"labels":{"service.kubernetes.io/headless":""}}}`)}, "a:[10.0.0.9:1]"},
		{"it becomes one", []step{record, one, put(sliceKey("1"), `{"metadata":{"labels":{"service.kubernetes.io/headless":""}}}`)}, "a:[10.0.0.9:1]"},
		{"terminating, and a ready one in another slice", []step{put(sliceKey("1"), slice("a", "terminating 10.0.0.1:1")), two}, "a:[10.0.0.2:1]"},
		{"then the ready one goes", []step{put(sliceKey("1"), slice("a", "terminating 10.0.0.1:1")), two, remove(sliceKey("2"))}, "a:[10.0.0.1:1]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, often := range []bool{false, true} { // changes taken after each step add up to the same
				r := New(decode.Decoder{})
				for _, step := range test.steps {
					step(r)
					if often {
						r.endpointsText()
					}
				}
				if got := r.endpointsText(); got != test.want {
					t.Errorf("%q in force; want %q", got, test.want)
				}
			}
		})
	}
}

func TestAnotherSpellingOfASliceIsNoChange(t *testing.T) {
	r := New(decode.Decoder{})
	put := func(value string) {
		r.Put(Version{Key: []byte(sliceKey("1")), Value: []byte(value), Created: 2, Revision: 2})
	}
	put(slice("a", "10.0.0.1:1", "10.0.0.2:1"))
	r.changes()
	for _, value := range []string{" " + slice("a", "10.0.0.1:1", "10.0.0.2:1"), slice("a", "10.0.0.2:1", "10.0.0.1:1"), slice("a", "10.0.0.1:1", "10.0.0.2:1", "terminating 10.0.0.3:1")} {
		put(value)
		if s, e := r.changes(); len(s)+len(e) != 0 {
			t.Errorf("%s: changes %v, %v; want none", value, s, e)
		}
	}
}

func TestManyChangesOfOneServiceAreJoinedOnce(t *testing.T) {
	r := New(decode.Decoder{})
	const n = 2000
	for round := range 2 {
		for i := range n {
			r.Put(Version{Key: []byte(sliceKey(fmt.Sprint(i))), Value: []byte(slice("a", fmt.Sprintf("10.%d.%d.%d:1", round, i/250, i%250))), Created: 2, Revision: 2})
		}
		if len(r.dirty) != 1 {
			t.Errorf("%d objects may have changed; want one", len(r.dirty))
		}
		if _, e := r.changes(); len(e) != 1 || e[0].Value.Of("").Len() != n {
			t.Errorf("changes %v; want one service with %d endpoints", e, n)
		}
	}
	for i := range n {
		r.Remove([]byte(sliceKey(fmt.Sprint(i))))
	}
	if _, e := r.changes(); len(e) != 1 || e[0].Value != nil || len(r.joins) != 0 {
		t.Errorf("changes %v, %d joins left; want the endpoints gone", e, len(r.joins))
	}
}

func TestSlicesThatHoldTooMuchAreWarnedOfOnce(t *testing.T) {
	log := recordstest.LogSince(t)
	synctest.Test(t, func(t *testing.T) {
		r := New(decode.Decoder{})
		for i := range 29 {
			var some []string
			for j := range 5000 {
				some = append(some, fmt.Sprintf("10.%d.%d.%d:1", i, j/250, j%250))
			}
			r.Put(Version{Key: []byte(sliceKey(fmt.Sprint(100 + i))), Value: []byte(slice("a", some...)), Created: 2, Revision: 2})
			if i > 24 { // 131,072 are too few from 27 slices on
				r.changes()
				time.Sleep(time.Hour)
			}
		}
	})
	text := log()
	if n := strings.Count(text, "its endpoint slices list more than 131072 endpoints"); n != 1 || !strings.Contains(text, "endpoints of a: ") {
		t.Errorf("said %d times; want once:\n%.2000s", n, text)
	}
}

// A plainKey is what the model knows of a key: its value, and what the last good one said.
type plainKey struct {
	created int64
	value   string
	good    *plainRecord // nil: none in this life
}

type plainRecord struct {
	service            string // of a slice
	ready, terminating []string
}

// plain recomputes, from all keys, what the endpoints of all services are.
func plain(keys map[string]*plainKey) string {
	ready, terminating, sliced := make(map[string]map[string]bool), make(map[string][]string), make(map[string]bool)
	for _, k := range keys {
		if k.good == nil || k.good.service == "" {
			continue
		}
		service := k.good.service
		if sliced[service] = true; ready[service] == nil {
			ready[service] = make(map[string]bool)
		}
		for _, a := range k.good.ready {
			ready[service][a] = true
		}
		terminating[service] = append(terminating[service], k.good.terminating...)
	}
	all := make(map[registry.Name]*registry.Endpoints)
	add := func(service string, list []string) {
		e := &registry.Endpoints{Name: registry.Name{Namespace: "default", Name: service}}
		var packed []registry.Addr
		for _, text := range list {
			a, err := registry.ParseAddr(text)
			if err != nil {
				panic(err)
			}
			packed = append(packed, a)
		}
		if len(packed) > 0 {
			e.ByPort = []registry.PortAddrs{{Addrs: registry.NewAddrs(packed...)}}
		}
		all[e.Name] = e
	}
	for service := range sliced {
		list := slices.Collect(maps.Keys(ready[service]))
		if len(list) == 0 {
			list = terminating[service]
		}
		slices.Sort(list) // the texts of the test have the order of the addresses
		add(service, slices.Compact(list))
	}
	for key, k := range keys {
		if service, ok := strings.CutPrefix(key, registry.EndpointsPrefix); ok && k.good != nil && !sliced[service] {
			add(service, k.good.ready)
		}
	}
	return textOf(all)
}

// Whatever is written in which order, and however much of it a source hears of at once: the sum of the updates is what all keys say.
func TestTheSumOfUpdatesIsWhatAllKeysSay(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	services := []string{"a", "b", "c"}
	var names []string
	for _, service := range services {
		names = append(names, ends(service))
	}
	for i := range 7 {
		names = append(names, sliceKey(fmt.Sprint(i)))
	}
	some := func() (list []string) {
		for i := range 4 {
			if random.IntN(3) == 0 {
				list = append(list, fmt.Sprintf("10.0.0.%d:1", i))
			}
		}
		return list
	}
	s, keys, held, revision := New(decode.Decoder{}), make(map[string]*plainKey), make(map[registry.Name]*registry.Endpoints), int64(2)
	write := func(key string) { // a new value of a key, for the model only
		revision++
		k := keys[key]
		if k == nil || random.IntN(10) == 0 { // perhaps another life
			k = &plainKey{created: revision}
			keys[key] = k
		}
		good := &plainRecord{ready: some()}
		switch {
		case random.IntN(5) == 0:
			k.value = fmt.Sprintf("bad %d", revision)
			return
		case strings.HasPrefix(key, registry.EndpointsPrefix):
			k.value = addrs(good.ready...)
			if len(good.ready) == 0 {
				k.value = `{}`
			}
		default:
			good.service, good.terminating = services[random.IntN(len(services))], some()
			all := slices.Clone(good.ready)
			for _, a := range good.terminating {
				all = append(all, "terminating "+a)
			}
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			k.value = slice(good.service, all...)
		}
		k.good = good
	}
	version := func(key string) Version {
		return Version{Key: []byte(key), Value: []byte(keys[key].value), Created: keys[key].created, Revision: revision}
	}
	for step := range 5000 {
		key := names[random.IntN(len(names))]
		switch n := random.IntN(20); {
		case n < 12:
			write(key)
			s.Put(version(key))
		case n < 17:
			revision++
			delete(keys, key)
			s.Remove([]byte(key))
		default: // some changes that only a list shows
			for _, i := range random.Perm(len(names))[:random.IntN(4)] {
				if key := names[i]; random.IntN(2) == 0 {
					write(key)
				} else {
					delete(keys, key)
				}
			}
			l := s.NewList(0)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				l.Add([]Version{version(key)})
			}
			l.Wait()
			s.Merge(l, revision, nil, 0)
		}
		if random.IntN(2) == 0 {
			continue // more in one update
		}
		u := s.Update(random.IntN(10) == 0, revision, time.Now())
		if u.Set {
			clear(held)
		}
		for _, c := range u.Endpoints {
			if c.Value == nil {
				delete(held, c.Name)
			} else {
				held[c.Name] = c.Value
			}
		}
		if got, want := textOf(held), plain(keys); got != want {
			t.Fatalf("step %d: the updates add up to\n%s; want\n%s", step, got, want)
		}
	}
}

// A change of one slice costs by the size of the slices of its service, however many other services there are.
func BenchmarkChangeOfOneSlice(b *testing.B) {
	for _, shape := range []struct{ services, slices int }{{1, 1}, {1, 10}, {1, 1000}, {10_000, 1}} {
		b.Run(fmt.Sprintf("services=%d/slices=%d", shape.services, shape.slices), func(b *testing.B) {
			s := New(decode.Decoder{})
			for i := range shape.services {
				for j := range shape.slices {
					s.Put(Version{Key: []byte(sliceKey(fmt.Sprintf("%d-%d", i, j))), Value: []byte(slice(fmt.Sprint(i), fmt.Sprintf("10.0.%d.%d:1", j/250, j%250))), Created: 2, Revision: 2})
				}
			}
			s.changes()
			values := [][]byte{[]byte(slice("0", "10.1.0.0:1")), []byte(slice("0", "10.2.0.0:1"))}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Put(Version{Key: []byte(sliceKey("0-0")), Value: values[i%2], Created: 2, Revision: 3})
				if _, e := s.changes(); len(e) != 1 {
					b.Fatal(e)
				}
			}
		})
	}
}
