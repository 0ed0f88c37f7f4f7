package etcdsource

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
)

func TestRejectedKeysAreListedUntilTheyAreMended(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1), ends("b"), `{"endpoints":"no list"}`, spec("x/y/z"), port(1), spec("a"), "{")
	f := follow(t, quick(etcd.URL()))
	list := func(keys int) string {
		t.Helper()
		st := f.awaitStatus(t, "so many keys", func(st Status) bool { return st.Ready && len(st.Rejections) == keys })
		if st.Rejected != keys {
			t.Errorf("%d are counted and %d listed", st.Rejected, keys)
		}
		var lines []string
		for _, r := range st.Rejections {
			reason, _, _ := strings.Cut(r.Reason, ":")
			lines = append(lines, fmt.Sprintf("%s %v@%d %s", r.Key, r.Kind, r.Revision, reason))
		}
		return strings.Join(lines, "\n")
	}
	want := "/registry/services/endpoints/b Endpoints@3 endpoints holds a string where an array is wanted\n" +
		"/registry/services/specs/a Service@5 not valid JSON\n" +
		"/registry/services/specs/x/y/z Service@4 key has more than two segments below /registry/services/specs/"
	if got := list(3); got != want {
		t.Errorf("listed:\n%s\nwant:\n%s", got, want)
	}
	before := f.source.Status().Rejections
	put(t, c, spec("a"), port(2))
	del(t, c, spec("x/y/z"))
	if got := list(1); !strings.HasPrefix(want, got) {
		t.Errorf("then listed:\n%s\nwant the first of\n%s", got, want)
	}
	if len(before) != 3 || before[1].Key != spec("a") {
		t.Errorf("what was read before has changed: %v", before)
	}
	put(t, c, ends("b"), addrs("10.0.0.1:1"))
	list(0)
}

func TestTheListOfRejectedKeysIsBounded(t *testing.T) {
	r := newRecords()
	var l listing
	for i := range 3 * MaxRejections {
		l.kvs = append(l.kvs, &mvccpb.KeyValue{
			Key: []byte(registry.SpecsPrefix + fmt.Sprintf("%04d\n", i) + strings.Repeat("x", 240) + "/" + strings.Repeat("x", 253)), Value: []byte("{"), CreateRevision: 2, ModRevision: 2,
		})
	}
	r.merge(l, nil, 0)
	rejections, changed := r.rejections()
	if !changed || len(rejections) != MaxRejections || r.invalid != len(l.kvs) {
		t.Fatalf("%d listed of %d; want %d of %d", len(rejections), r.invalid, MaxRejections, len(l.kvs))
	}
	if !slices.IsSortedFunc(rejections, func(a, b Rejection) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("they are not sorted")
	}
	for _, rejected := range rejections {
		if !isShortLine(rejected.Key) || !isShortLine(rejected.Reason) {
			t.Fatalf("%q: %q; want two short lines", rejected.Key, rejected.Reason)
		}
	}
	if _, changed := r.rejections(); changed {
		t.Error("nothing has happened, and the list is another one")
	}

	// Those that had no room at first find it when others are mended.
	for _, kv := range l.kvs[:2*MaxRejections] {
		kv.Value, kv.ModRevision = []byte(port(1)), 3
	}
	r.merge(l, nil, 2)
	r.merge(l, nil, 2)
	if rejections, _ := r.rejections(); len(rejections) != MaxRejections || r.invalid != MaxRejections {
		t.Errorf("then %d of %d; want all %d that are left", len(rejections), r.invalid, MaxRejections)
	}
}

func TestAFloodOfBadRecordsDoesNotFloodTheLog(t *testing.T) {
	log := logSince(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		for i := range 60_000 { // ten minutes, a hundred a second
			r.put(kv(2, int64(i+2), fmt.Sprint("bad ", i)))
			if i%3 == 2 {
				r.put(kv(2, int64(i+2), port(1+i%1000)))
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	text := log()
	complaints, held := strings.Count(text, "bad value of key"), strings.Count(text, "held back")
	mended := strings.Count(text, "can be used again")
	t.Logf("%d bad values, %d times mended, %d lines about what is held back", complaints, mended, held)
	if complaints < maxComplaints || complaints > 10*maxComplaints || mended > complaints || held == 0 || held > 20 {
		t.Errorf("that is too much or too little:\n%.4000s", text)
	}
}

// One of v0.4 whose records are all of another format.
func TestARegistryWithoutAUsableKeyTakesOneLine(t *testing.T) {
	c := etcdtest.StartServer(t).Client(t)
	for i := range 30 {
		put(t, c, spec(fmt.Sprint("default/a", i)), "k8s\x00\n\x0b\n\x02v1\x12\x07Service")
	}
	log := logSince(t)
	f := follow(t, quick(c.Endpoints()[0]))
	st := f.awaitStatus(t, "30 rejected keys", func(st Status) bool { return st.Rejected == 30 })
	if st.Services+st.Endpoints != 0 {
		t.Errorf("%+v; want no object", st)
	}
	f.await(t, " | ")
	put(t, c, spec("b"), port(1))
	f.await(t, "b:1 | ")
	if text := log(); strings.Count(text, "can be used") != 1 || strings.Contains(text, "bad value") || !strings.Contains(text, "none of the 30 keys below /registry/services/ can be used, for example ") {
		t.Errorf("the log:\n%s", text)
	}
}
