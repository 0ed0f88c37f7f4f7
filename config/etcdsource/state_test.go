package etcdsource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/registry"
)

// kv is a value of the service a: created and modified at these revisions.
func kv(created, modified int64, value string) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(spec("a")), CreateRevision: created, ModRevision: modified, Value: []byte(value)}
}

func listed(revision int64, kvs ...*mvccpb.KeyValue) listing {
	return listing{revision: revision, kvs: kvs, count: int64(len(kvs))}
}

// show takes out all changes and gives the services in force: "a:80@2", with the create revision.
func (r *records) show() string {
	r.changes()
	var all []string
	for _, name := range slices.SortedFunc(maps.Keys(r.services), registry.Name.Compare) {
		s := r.services[name]
		all = append(all, fmt.Sprintf("%v:%d@%d", name, s.Ports[0].Number, s.Created))
	}
	return strings.Join(all, " ")
}

// Whatever comes in which order: in force is the newest version that decodes, of those that were given, in
// the present life of the key.
func TestTheNewestGoodVersionGivenIsInForce(t *testing.T) {
	const bad = "{"
	type step = func(*records) // one piece of news
	put := func(v *mvccpb.KeyValue) step { return func(r *records) { r.put(v) } }
	remove := func(r *records) { r.remove([]byte(spec("a"))) }
	sifted := false
	answer := func(r *records, revision int64, kvs ...*mvccpb.KeyValue) listing {
		l := listed(revision, kvs...)
		if sifted {
			l.kvs = r.sift(kvs, &l.known)
		}
		return l
	}
	list := func(revision int64, kvs ...*mvccpb.KeyValue) step { // of a new session
		return func(r *records) { r.merge(answer(r, revision, kvs...), nil, 0) }
	}
	resync := func(revision int64, last int64, kvs ...*mvccpb.KeyValue) step { // after an event at last
		return func(r *records) { r.merge(answer(r, revision, kvs...), map[string]int64{spec("a"): last}, last) }
	}
	during := func(revision int64, last int64, listed *mvccpb.KeyValue, event step) step { // the event comes between a page and its use
		return func(r *records) {
			l := answer(r, revision, listed)
			event(r)
			r.merge(l, map[string]int64{spec("a"): last}, last)
		}
	}
	for _, test := range []struct {
		name  string
		steps []step
		want  string
	}{
		{"a good one", []step{put(kv(2, 2, port(1)))}, "a:1@2"},
		{"a bad one first", []step{put(kv(2, 2, bad))}, ""},
		{"bad after good", []step{put(kv(2, 2, port(1))), put(kv(2, 3, bad))}, "a:1@2"},
		{"bad after good, twice", []step{put(kv(2, 2, port(1))), put(kv(2, 3, bad)), put(kv(2, 4, bad+bad))}, "a:1@2"},
		{"good after bad", []step{put(kv(2, 2, bad)), put(kv(2, 3, port(1)))}, "a:1@2"},
		{"deleted", []step{put(kv(2, 2, port(1))), remove}, ""},
		{"deleted and created again, bad", []step{put(kv(2, 2, port(1))), remove, put(kv(4, 4, bad))}, ""},
		{"created again unseen, bad", []step{put(kv(2, 2, port(1))), list(9, kv(4, 4, bad))}, ""},
		{"created again unseen, the same bytes", []step{put(kv(2, 2, port(1))), list(9, kv(4, 4, port(1)))}, "a:1@4"},
		{"bad in a list, in the same life", []step{put(kv(2, 2, port(1))), list(9, kv(2, 3, bad))}, "a:1@2"},
		{"gone from a list", []step{put(kv(2, 2, port(1))), list(9)}, ""},
		{"a list at an older revision: what was good is of a lost future", []step{put(kv(2, 5, port(1))), list(4, kv(2, 3, bad))}, ""},
		{"the same, and it was bad already", []step{put(kv(2, 5, port(1))), put(kv(2, 6, bad)), list(4, kv(2, 3, bad))}, ""},
		{"the same bytes at an older revision hold the place", []step{put(kv(2, 5, port(1))), list(4, kv(2, 3, port(1))), put(kv(2, 4, bad))}, "a:1@2"},
		{"equal ids and revisions, other bytes", []step{put(kv(2, 2, port(1))), list(2, kv(2, 2, port(2)))}, "a:2@2"},

		{"a resync older than the event: put", []step{put(kv(2, 8, port(1))), resync(5, 8, kv(2, 5, port(2)))}, "a:1@2"},
		{"a resync older than the event: created", []step{put(kv(8, 8, port(1))), resync(5, 8)}, "a:1@8"},
		{"a resync older than the event: deleted", []step{put(kv(2, 2, port(1))), remove, resync(5, 8, kv(2, 2, port(1)))}, ""},
		{"a resync older than the event: created again", []step{put(kv(2, 2, port(1))), remove, put(kv(8, 8, port(2))), resync(5, 8, kv(2, 2, port(1)))}, "a:2@8"},
		{"a resync older than a bad event has the good version that was missing",
			[]step{put(kv(2, 8, bad)), resync(5, 8, kv(2, 5, port(1)))}, "a:1@2"},
		{"but not of another life", []step{put(kv(8, 8, bad)), resync(5, 8, kv(2, 5, port(1)))}, ""},
		{"nor an older one than is known", []step{put(kv(2, 7, port(2))), put(kv(2, 8, bad)), resync(5, 8, kv(2, 5, port(1)))}, "a:2@2"},
		{"nor a bad one", []step{put(kv(2, 7, port(2))), put(kv(2, 8, bad)), resync(5, 8, kv(2, 5, bad))}, "a:2@2"},
		{"a resync newer than the event", []step{put(kv(2, 8, port(1))), resync(9, 8, kv(2, 9, port(2)))}, "a:2@2"},
		{"a resync newer than the event: deleted", []step{put(kv(2, 8, port(1))), resync(9, 8)}, ""},
		{"a resync newer than the event, and as it was before",
			[]step{put(kv(2, 5, port(1))), during(10, 7, kv(2, 9, port(1)), put(kv(2, 7, port(2))))}, "a:1@2"},
		{"a resync newer than the event, and as it was before a bad one",
			[]step{put(kv(2, 5, port(1))), during(10, 7, kv(2, 9, port(1)), put(kv(2, 7, bad))), put(kv(2, 11, bad+bad)), list(8, kv(2, 8, bad))}, ""},
		{"a resync newer than the event: deleted, and created again",
			[]step{put(kv(2, 5, port(1))), during(10, 7, kv(2, 9, port(1)), remove)}, "a:1@2"},
		{"a resync that is the same, and a bad event",
			[]step{put(kv(2, 5, port(1))), during(10, 12, kv(2, 9, port(1)), put(kv(2, 12, bad))), list(8, kv(2, 8, bad))}, ""},
		{"a resync that is the same, and the event as well",
			[]step{put(kv(2, 5, port(1))), during(10, 12, kv(2, 9, port(1)), put(kv(2, 12, port(2))))}, "a:2@2"},
		{"a resync that is the same, and it is deleted",
			[]step{put(kv(2, 5, port(1))), during(10, 12, kv(2, 9, port(1)), remove)}, ""},
		{"a resync newer than the event: bad", []step{put(kv(2, 8, port(1))), resync(9, 8, kv(2, 9, bad))}, "a:1@2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for i := range 4 {
				often := i%2 == 1 // changes taken after each step add up to the same
				sifted = i/2 == 1 // and so do lists of which only the news was kept
				r := newRecords()
				for _, step := range test.steps {
					step(r)
					if often {
						r.show()
					}
				}
				if got := r.show(); got != test.want {
					t.Errorf("%q in force; want %q", got, test.want)
				}
				if n := len(r.entries); n == 0 && r.invalid != 0 {
					t.Errorf("%d invalid keys of %d", r.invalid, n)
				}
			}
		})
	}
}

func TestOfAListOnlyTheNewsIsKept(t *testing.T) {
	r := newRecords()
	r.put(kv(2, 2, port(1)))
	for _, test := range []struct {
		name string
		kv   *mvccpb.KeyValue
		news bool
	}{
		{"the same", kv(2, 2, port(1)), false},
		{"the same, written again", kv(2, 5, port(1)), false},
		{"another value", kv(2, 2, port(2)), true},
		{"another life", kv(5, 5, port(1)), true},
		{"another key", &mvccpb.KeyValue{Key: []byte(spec("b")), CreateRevision: 2, ModRevision: 2, Value: []byte(port(1))}, true},
	} {
		var known []familiar
		if news := r.sift([]*mvccpb.KeyValue{test.kv}, &known); len(news) == 1 != test.news || len(known) == 1 == test.news {
			t.Errorf("%s: %d of news, %d known", test.name, len(news), len(known))
		}
	}
	r.put(kv(2, 7, "bad"))
	var known []familiar
	if news := r.sift([]*mvccpb.KeyValue{kv(2, 7, "bad")}, &known); len(news) != 1 {
		t.Error("a value that cannot be used is known by nothing but its bytes")
	}
}

func TestAnUnchangedListChangesNothing(t *testing.T) {
	r := newRecords()
	l := bigList(100)
	if different, _ := r.merge(l, nil, 0); different.n != 200 {
		t.Errorf("%d different at first; want all", different.n)
	}
	before, _ := r.everything()
	if different, divergent := r.merge(l, nil, l.revision); different.n != 0 || divergent.n != 0 {
		t.Errorf("%d different (%v), divergent %v; want none", different.n, different, divergent)
	}
	if s, e := r.changes(); len(s)+len(e) != 0 {
		t.Errorf("changes %v, %v", s, e)
	}
	after, _ := r.everything()
	old := make(map[registry.Name]*registry.Service)
	for _, c := range before {
		old[c.Name] = c.Value
	}
	for _, c := range after {
		if old[c.Name] != c.Value {
			t.Fatalf("%v was decoded again", c.Name)
		}
	}
}

func TestAValueWrittenOtherwiseThatSaysTheSameIsNoChange(t *testing.T) {
	r := newRecords()
	r.put(kv(2, 2, port(1)))
	r.changes()
	if !r.put(kv(2, 3, " "+port(1))) {
		t.Error("other bytes were not seen")
	}
	if s, _ := r.changes(); len(s) != 0 {
		t.Errorf("changes %v; want none", s)
	}
}

func TestDivergencesAreWhatTheWatchShouldHaveTold(t *testing.T) {
	for _, test := range []struct {
		name     string
		revision int64
		kvs      []*mvccpb.KeyValue
		heard    int64
		want     int
	}{
		{"put before", 9, []*mvccpb.KeyValue{kv(2, 7, port(2))}, 8, 1},
		{"put after", 9, []*mvccpb.KeyValue{kv(2, 9, port(2))}, 8, 0},
		{"gone, and heard of all that the list shows", 8, nil, 8, 1},
		{"gone, perhaps only just", 9, nil, 8, 0},
		{"the same", 9, []*mvccpb.KeyValue{kv(2, 2, port(1))}, 8, 0},
		{"created before, and put after", 9, []*mvccpb.KeyValue{kv(7, 9, port(2))}, 8, 1},
		{"the same, but older than it was", 9, []*mvccpb.KeyValue{kv(2, 1, port(1))}, 0, 1},
	} {
		for _, sifted := range []bool{false, true} {
			r := newRecords()
			r.put(kv(2, 2, port(1)))
			l := listed(test.revision, test.kvs...)
			if sifted {
				l.kvs = r.sift(test.kvs, &l.known)
			}
			if _, divergent := r.merge(l, nil, test.heard); divergent.n != test.want {
				t.Errorf("%s, sifted %t: divergent %v; want %d", test.name, sifted, divergent, test.want)
			}
		}
	}
}

func TestWhatIsRememberedOfAKeyIsBounded(t *testing.T) {
	r := newRecords()
	for i := range 10 * maxTold {
		r.put(kv(2, int64(i+2), fmt.Sprint("bad ", i)))
	}
	if n := len(r.entries[spec("a")].trouble.told); n != maxTold {
		t.Errorf("%d values remembered; want %d", n, maxTold)
	}
	r.remove([]byte(spec("a")))
	if len(r.entries) != 0 || r.invalid != 0 {
		t.Errorf("%d entries and %d invalid ones left of a deleted key", len(r.entries), r.invalid)
	}
}

// bigList is a registry of n services with endpoints, of the usual size.
func bigList(n int) listing {
	l := listing{revision: int64(2*n + 1)}
	add := func(key, value string) {
		revision := int64(len(l.kvs) + 2)
		l.kvs = append(l.kvs, &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: revision, ModRevision: revision})
	}
	for i := range n {
		name := fmt.Sprintf("service-%05d", i)
		add(ends(name), fmt.Sprintf(`{"kind":"Endpoints","id":%q,"creationTimestamp":null,"apiVersion":"v1beta1",`+
			`"endpoints":["10.244.1.%d:80","10.244.2.%d:80","10.244.3.%d:80"]}`, name, i%256, i%256, i%256))
	}
	for i := range n {
		name := fmt.Sprintf("service-%05d", i)
		add(spec(name), fmt.Sprintf(`{"kind":"Service","id":%q,"creationTimestamp":"2014-11-19T21:24:20Z","apiVersion":"v1beta1","namespace":"default",`+
			`"port":%d,"protocol":"TCP","labels":{"name":%q},"selector":{"name":%q},"containerPort":80}`, name, 10000+i%20000, name, name))
	}
	l.count = int64(len(l.kvs))
	return l
}

// The key of an entry is a string already, and an object's key is looked up by its parts.
func TestToFindAKnownKeyLeavesNoGarbage(t *testing.T) {
	r, l := newRecords(), bigList(1)
	r.merge(l, nil, 0)
	name := registry.Name{Namespace: "default", Name: "service-00000"}
	if n := testing.AllocsPerRun(10, func() {
		for _, kv := range l.kvs {
			r.put(kv)
		}
		r.remove([]byte("/registry/of/another/one/that/is/not/known"))
		if r.inForce(object{registry.KindEndpoints, name}).endpoints == nil {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations; want none", n)
	}
}

// A service that adds a port to an old record comes after the services that have the port: while the source runs, and also when it
// reads the registry for the first time. A change that leaves the port alone costs nothing while the source runs.
func TestAClaimIsDatedByTheRevisionThatProvesIt(t *testing.T) {
	both := `{"ports":[{"port":1},{"port":2}]}`
	labelled := `{"ports":[{"port":1},{"port":2}],"labels":{"a":"b"},"sessionAffinity":"ClientIP"}`
	for _, test := range []struct {
		name string
		news func(*records)
		want []int64
	}{
		{"first list, never modified", func(r *records) { r.merge(listed(9, kv(2, 2, both)), nil, 0) }, []int64{2, 2}},
		{"first list, modified since", func(r *records) { r.merge(listed(9, kv(2, 7, both)), nil, 0) }, []int64{7, 7}},
		{"a port is added", func(r *records) { r.put(kv(2, 2, port(1))); r.put(kv(2, 7, both)) }, []int64{2, 7}},
		{"a port is added, and a list finds it", func(r *records) { r.put(kv(2, 2, port(1))); r.merge(listed(9, kv(2, 7, both)), nil, 0) }, []int64{2, 7}},
		{"something else is changed", func(r *records) { r.put(kv(2, 2, both)); r.put(kv(2, 7, labelled)) }, []int64{2, 2}},
		{"a bad value between", func(r *records) { r.put(kv(2, 2, both)); r.put(kv(2, 3, "{")); r.put(kv(2, 7, labelled)) }, []int64{2, 2}},
		{"created again", func(r *records) { r.put(kv(2, 2, both)); r.put(kv(7, 7, both)) }, []int64{7, 7}},
		{"given up and added again", func(r *records) { r.put(kv(2, 2, both)); r.put(kv(2, 3, port(1))); r.put(kv(2, 7, both)) }, []int64{2, 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRecords()
			test.news(r)
			services, _ := r.changes()
			if len(services) != 1 || !slices.Equal(services[0].Value.Since, test.want) {
				t.Errorf("changes %+v; want one service whose claims date from %v", services, test.want)
			}
		})
	}
}
