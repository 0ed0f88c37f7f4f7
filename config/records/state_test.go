package records

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// show takes out all changes and gives the services in force: "a:80@2", with the create revision.
func (r *State) show() string {
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
	type step = func(*State) // one piece of news
	put := func(v Version) step { return func(s *State) { s.Put(v) } }
	remove := func(s *State) { s.Remove([]byte(spec("a"))) }
	sifted := false
	answer := func(s *State, versions ...Version) List {
		if sifted {
			return s.sifted(versions...)
		}
		return listOf(versions...)
	}
	list := func(revision int64, versions ...Version) step { // of a new session
		return func(s *State) { s.Merge(answer(s, versions...), revision, nil, 0) }
	}
	resync := func(revision int64, last int64, versions ...Version) step { // after an event at last
		return func(s *State) { s.Merge(answer(s, versions...), revision, map[string]int64{spec("a"): last}, last) }
	}
	during := func(revision int64, last int64, listed Version, event step) step { // the event comes between a page and its use
		return func(s *State) {
			l := answer(s, listed)
			event(s)
			s.Merge(l, revision, map[string]int64{spec("a"): last}, last)
		}
	}
	for _, test := range []struct {
		name  string
		steps []step
		want  string
	}{
		{"a good one", []step{put(v(2, 2, port(1)))}, "a:1@2"},
		{"a bad one first", []step{put(v(2, 2, bad))}, ""},
		{"bad after good", []step{put(v(2, 2, port(1))), put(v(2, 3, bad))}, "a:1@2"},
		{"bad after good, twice", []step{put(v(2, 2, port(1))), put(v(2, 3, bad)), put(v(2, 4, bad+bad))}, "a:1@2"},
		{"good after bad", []step{put(v(2, 2, bad)), put(v(2, 3, port(1)))}, "a:1@2"},
		{"deleted", []step{put(v(2, 2, port(1))), remove}, ""},
		{"deleted and created again, bad", []step{put(v(2, 2, port(1))), remove, put(v(4, 4, bad))}, ""},
		{"created again unseen, bad", []step{put(v(2, 2, port(1))), list(9, v(4, 4, bad))}, ""},
		{"created again unseen, the same bytes", []step{put(v(2, 2, port(1))), list(9, v(4, 4, port(1)))}, "a:1@4"},
		{"bad in a list, in the same life", []step{put(v(2, 2, port(1))), list(9, v(2, 3, bad))}, "a:1@2"},
		{"in a life that nobody knows, bad", []step{put(v(2, 2, port(1))), put(v(0, 3, bad))}, "a:1@2"},
		{"in a life that nobody knows, listed, bad", []step{put(v(2, 2, port(1))), list(9, v(0, 3, bad))}, "a:1@2"},
		{"in a life that nobody knows, good", []step{put(v(2, 2, port(1))), put(v(0, 3, port(2)))}, "a:2@2"},
		{"after a life that nobody knew, bad", []step{put(v(0, 2, port(1))), put(v(9, 3, bad))}, ""},
		{"gone from a list", []step{put(v(2, 2, port(1))), list(9)}, ""},
		{"a list at an older revision: what was good is of a lost future", []step{put(v(2, 5, port(1))), list(4, v(2, 3, bad))}, ""},
		{"the same, and it was bad already", []step{put(v(2, 5, port(1))), put(v(2, 6, bad)), list(4, v(2, 3, bad))}, ""},
		{"the same bytes at an older revision hold the place", []step{put(v(2, 5, port(1))), list(4, v(2, 3, port(1))), put(v(2, 4, bad))}, "a:1@2"},
		{"equal ids and revisions, other bytes", []step{put(v(2, 2, port(1))), list(2, v(2, 2, port(2)))}, "a:2@2"},

		{"a resync older than the event: put", []step{put(v(2, 8, port(1))), resync(5, 8, v(2, 5, port(2)))}, "a:1@2"},
		{"a resync older than the event: created", []step{put(v(8, 8, port(1))), resync(5, 8)}, "a:1@8"},
		{"a resync older than the event: deleted", []step{put(v(2, 2, port(1))), remove, resync(5, 8, v(2, 2, port(1)))}, ""},
		{"a resync older than the event: created again", []step{put(v(2, 2, port(1))), remove, put(v(8, 8, port(2))), resync(5, 8, v(2, 2, port(1)))}, "a:2@8"},
		{"a resync older than a bad event has the good version that was missing",
			[]step{put(v(2, 8, bad)), resync(5, 8, v(2, 5, port(1)))}, "a:1@2"},
		{"but not of another life", []step{put(v(8, 8, bad)), resync(5, 8, v(2, 5, port(1)))}, ""},
		{"nor an older one than is known", []step{put(v(2, 7, port(2))), put(v(2, 8, bad)), resync(5, 8, v(2, 5, port(1)))}, "a:2@2"},
		{"nor a bad one", []step{put(v(2, 7, port(2))), put(v(2, 8, bad)), resync(5, 8, v(2, 5, bad))}, "a:2@2"},
		{"a resync newer than the event", []step{put(v(2, 8, port(1))), resync(9, 8, v(2, 9, port(2)))}, "a:2@2"},
		{"a resync newer than the event: deleted", []step{put(v(2, 8, port(1))), resync(9, 8)}, ""},
		{"a resync newer than the event, and as it was before",
			[]step{put(v(2, 5, port(1))), during(10, 7, v(2, 9, port(1)), put(v(2, 7, port(2))))}, "a:1@2"},
		{"a resync newer than the event, and as it was before a bad one",
			[]step{put(v(2, 5, port(1))), during(10, 7, v(2, 9, port(1)), put(v(2, 7, bad))), put(v(2, 11, bad+bad)), list(8, v(2, 8, bad))}, ""},
		{"a resync newer than the event: deleted, and created again",
			[]step{put(v(2, 5, port(1))), during(10, 7, v(2, 9, port(1)), remove)}, "a:1@2"},
		{"a resync that is the same, and a bad event",
			[]step{put(v(2, 5, port(1))), during(10, 12, v(2, 9, port(1)), put(v(2, 12, bad))), list(8, v(2, 8, bad))}, ""},
		{"a resync that is the same, and the event as well",
			[]step{put(v(2, 5, port(1))), during(10, 12, v(2, 9, port(1)), put(v(2, 12, port(2))))}, "a:2@2"},
		{"a resync that is the same, and it is deleted",
			[]step{put(v(2, 5, port(1))), during(10, 12, v(2, 9, port(1)), remove)}, ""},
		{"a resync newer than the event: bad", []step{put(v(2, 8, port(1))), resync(9, 8, v(2, 9, bad))}, "a:1@2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for i := range 4 {
				often := i%2 == 1 // changes taken after each step add up to the same
				sifted = i/2 == 1 // and so do lists of which only the news was kept
				r := New(decode.Decoder{})
				for _, step := range test.steps {
					step(r)
					if often {
						r.show()
					}
				}
				if got := r.show(); got != test.want {
					t.Errorf("%q in force; want %q", got, test.want)
				}
				if n := len(r.entries); n == 0 && r.rejected.all != 0 {
					t.Errorf("%d invalid keys of %d", r.rejected.all, n)
				}
			}
		})
	}
}

func TestOfAListOnlyTheNewsIsKept(t *testing.T) {
	r := New(decode.Decoder{})
	r.Put(v(2, 2, port(1)))
	for _, test := range []struct {
		name string
		v    Version
		news bool
	}{
		{"the same", v(2, 2, port(1)), false},
		{"the same, written again", v(2, 5, port(1)), false},
		{"another value", v(2, 2, port(2)), true},
		{"another life", v(5, 5, port(1)), true},
		{"another key", Version{Key: []byte(spec("b")), Value: []byte(port(1)), Created: 2, Revision: 2}, true},
	} {
		l := r.sifted(test.v)
		if len(l.News()) == 1 != test.news || len(l.known) == 1 == test.news || l.Len() != 1 {
			t.Errorf("%s: %d of news, %d known", test.name, len(l.News()), len(l.known))
		}
	}
	r.Put(v(2, 7, "bad"))
	if l := r.sifted(v(2, 7, "bad")); len(l.News()) != 1 {
		t.Error("a value that cannot be used is known by nothing but its bytes")
	}
}

func TestAStateUnderstandsRecordsAsItIsTold(t *testing.T) {
	const value = `{"ports":[{"port":1,"nodePort":30001}]}`
	for _, test := range []struct {
		decoder decode.Decoder
		want    string
	}{{decode.Decoder{}, "a:1@2"}, {decode.Decoder{NodePorts: true}, "a:30001@2"}} {
		listed, heard := New(test.decoder), New(test.decoder)
		heard.Put(v(2, 2, value))
		listed.Merge(listed.sifted(v(2, 2, value)), 2, nil, 0)
		for _, r := range []*State{listed, heard} {
			if got := r.show(); got != test.want {
				t.Errorf("%+v: %q in force; want %q", test.decoder, got, test.want)
			}
		}
	}
}

func TestAnUnchangedListChangesNothing(t *testing.T) {
	r := New(decode.Decoder{})
	all, revision := bigRegistry(100), int64(201)
	if different, _ := r.Merge(r.sifted(all...), revision, nil, 0); different.N != 200 {
		t.Errorf("%d different at first; want all", different.N)
	}
	before, _ := r.everything()
	if different, divergent := r.Merge(listOf(all...), revision, nil, revision); different.N != 0 || divergent.N != 0 {
		t.Errorf("%d different (%v), divergent %v; want none", different.N, different, divergent)
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
	r := New(decode.Decoder{})
	r.Put(v(2, 2, port(1)))
	r.changes()
	if !r.Put(v(2, 3, " "+port(1))) {
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
		list     []Version
		heard    int64
		want     int
	}{
		{"put before", 9, []Version{v(2, 7, port(2))}, 8, 1},
		{"put after", 9, []Version{v(2, 9, port(2))}, 8, 0},
		{"gone, and heard of all that the list shows", 8, nil, 8, 1},
		{"gone, perhaps only just", 9, nil, 8, 0},
		{"the same", 9, []Version{v(2, 2, port(1))}, 8, 0},
		{"created before, and put after", 9, []Version{v(7, 9, port(2))}, 8, 1},
		{"of a life with a number of its own, put before", 9, []Version{v(1<<60, 7, port(2))}, 8, 1},
		{"of a life with a number of its own, put after", 9, []Version{v(1<<60, 9, port(2))}, 8, 0},
		{"the same, but older than it was", 9, []Version{v(2, 1, port(1))}, 0, 1},
	} {
		for _, sifted := range []bool{false, true} {
			r := New(decode.Decoder{})
			r.Put(v(2, 2, port(1)))
			l := listOf(test.list...)
			if sifted {
				l = r.sifted(test.list...)
			}
			if _, divergent := r.Merge(l, test.revision, nil, test.heard); divergent.N != test.want {
				t.Errorf("%s, sifted %t: divergent %v; want %d", test.name, sifted, divergent, test.want)
			}
		}
	}
}

// A directory of files, for one, has neither lives nor revisions of its keys, and is only ever listed.
func TestAStoreWithoutLivesAndRevisionsIsFollowedByListsAlone(t *testing.T) {
	s := New(decode.Decoder{})
	for i, test := range []struct {
		list []Version
		want string
	}{
		{[]Version{v(0, 0, port(1))}, "a:1@0"},
		{[]Version{v(0, 0, port(2))}, "a:2@0"},
		{[]Version{v(0, 0, "{")}, "a:2@0"},
		{[]Version{v(0, 0, "[")}, "a:2@0"},
		{[]Version{v(0, 0, port(3))}, "a:3@0"},
		{[]Version{v(0, 0, port(3))}, "a:3@0"},
		{nil, ""},
		{[]Version{v(0, 0, "{")}, ""},
		{[]Version{v(0, 0, port(3))}, "a:3@0"},
	} {
		s.Merge(s.sifted(test.list...), 0, nil, 0)
		if got := s.show(); got != test.want {
			t.Errorf("list %d: %q in force; want %q", i, got, test.want)
		}
	}
}

func TestWhatIsRememberedOfAKeyIsBounded(t *testing.T) {
	r := New(decode.Decoder{})
	for i := range 10 * maxTold {
		r.Put(v(2, int64(i+2), fmt.Sprint("bad ", i)))
	}
	if n := len(r.entries[spec("a")].recordErr.told); n != maxTold {
		t.Errorf("%d values remembered; want %d", n, maxTold)
	}
	r.Remove([]byte(spec("a")))
	if len(r.entries) != 0 || r.rejected.all != 0 {
		t.Errorf("%d entries and %d invalid ones left of a deleted key", len(r.entries), r.rejected.all)
	}
}

// The key of an entry is a string already, and an object's key is looked up by its parts.
func TestToFindAKnownKeyLeavesNoGarbage(t *testing.T) {
	r, all := New(decode.Decoder{}), bigRegistry(1)
	r.Merge(listOf(all...), 3, nil, 0)
	name := registry.Name{Namespace: "default", Name: "service-00000"}
	if n := testing.AllocsPerRun(10, func() {
		for _, v := range all {
			r.Put(v)
		}
		r.Remove([]byte("/registry/of/another/one/that/is/not/known"))
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
		news func(*State)
		want []int64
	}{
		{"first list, never modified", func(r *State) { r.Merge(listOf(v(2, 2, both)), 9, nil, 0) }, []int64{2, 2}},
		{"first list, modified since", func(r *State) { r.Merge(listOf(v(2, 7, both)), 9, nil, 0) }, []int64{7, 7}},
		{"a port is added", func(r *State) { r.Put(v(2, 2, port(1))); r.Put(v(2, 7, both)) }, []int64{2, 7}},
		{"a port is added, and a list finds it", func(r *State) { r.Put(v(2, 2, port(1))); r.Merge(listOf(v(2, 7, both)), 9, nil, 0) }, []int64{2, 7}},
		{"something else is changed", func(r *State) { r.Put(v(2, 2, both)); r.Put(v(2, 7, labelled)) }, []int64{2, 2}},
		{"a bad value between", func(r *State) { r.Put(v(2, 2, both)); r.Put(v(2, 3, "{")); r.Put(v(2, 7, labelled)) }, []int64{2, 2}},
		{"created again", func(r *State) { r.Put(v(2, 2, both)); r.Put(v(7, 7, both)) }, []int64{7, 7}},
		{"given up and added again", func(r *State) { r.Put(v(2, 2, both)); r.Put(v(2, 3, port(1))); r.Put(v(2, 7, both)) }, []int64{2, 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := New(decode.Decoder{})
			test.news(r)
			services, _ := r.changes()
			if len(services) != 1 || !slices.Equal(services[0].Value.Since, test.want) {
				t.Errorf("changes %+v; want one service whose claims date from %v", services, test.want)
			}
		})
	}
}
