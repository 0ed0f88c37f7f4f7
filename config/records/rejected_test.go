package records

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

func TestTheListOfRejectedKeysIsBounded(t *testing.T) {
	r := New(decode.Decoder{})
	var all []Version
	for i := range 3 * config.MaxRejections {
		all = append(all, Version{
			Key: []byte(registry.SpecsPrefix + fmt.Sprintf("%04d\n", i) + strings.Repeat("x", 240) + "/" + strings.Repeat("x", 253)), Value: []byte("{"), Created: 2, Revision: 2,
		})
	}
	r.Merge(listOf(all...), 2, nil, 0)
	rejections, changed := r.rejections()
	if !changed || len(rejections) != config.MaxRejections || r.rejected.all != len(all) {
		t.Fatalf("%d listed of %d; want %d of %d", len(rejections), r.rejected.all, config.MaxRejections, len(all))
	}
	if !slices.IsSortedFunc(rejections, func(a, b config.Rejection) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("they are not sorted")
	}
	for _, rejected := range rejections {
		if config.OneLine(rejected.Key) != rejected.Key || config.OneLine(rejected.Reason) != rejected.Reason {
			t.Fatalf("%q: %q; want two short lines", rejected.Key, rejected.Reason)
		}
	}
	if _, changed := r.rejections(); changed {
		t.Error("nothing has happened, and the list is another one")
	}

	// Those that had no room at first find it when others are mended.
	for i := range all[:2*config.MaxRejections] {
		all[i].Value, all[i].Revision = []byte(port(1)), 3
	}
	r.Merge(listOf(all...), 3, nil, 2)
	if rejections, _ := r.rejections(); len(rejections) != config.MaxRejections || r.rejected.all != config.MaxRejections {
		t.Errorf("then %d of %d; want all %d that are left", len(rejections), r.rejected.all, config.MaxRejections)
	}
}

// TestAKeyThatHadNoRoomIsListedOnceTheListedOnesAreDeleted: the list of keys comes to it before it misses those.
func TestAKeyThatHadNoRoomIsListedOnceTheListedOnesAreDeleted(t *testing.T) {
	log := recordstest.LogSince(t)
	r, l, out := New(decode.Decoder{}), NewOutageLog(0, "broken"), make(chan registry.Update, 1)
	var all []Version
	for i := range config.MaxRejections + 1 {
		all = append(all, Version{Key: fmt.Appendf(nil, "%s%04d", registry.SpecsPrefix, i), Value: []byte("{"), Created: 2, Revision: 2})
	}
	for _, left := range [][]Version{all, all[config.MaxRejections:]} {
		r.Merge(listOf(left...), 3, nil, 2)
		l.Send(t.Context(), out, r, true, 3, time.Now())
		<-out
		if st := l.Status(); st.Rejected != len(left) || len(st.Rejections) != min(len(left), config.MaxRejections) {
			t.Errorf("of %d bad keys %d are counted, %d listed", len(left), st.Rejected, len(st.Rejections))
		}
		l.ReportRead("etcd read", "keys")
	}
	if text := log(); !strings.Contains(text, `none of the 1 keys can be used, for example "/registry/services/specs/0100": `) {
		t.Errorf("the log says:\n%s", text)
	}
}

func TestOnlyShortTextsOfListedKeysAreKept(t *testing.T) {
	r := New(decode.Decoder{})
	bad := []string{"{", strings.Repeat("{", config.MaxRejectedValue), strings.Repeat("{", config.MaxRejectedValue+1), "{\xff"}
	for i := range 2 * config.MaxRejections {
		r.Put(Version{Key: []byte(registry.SpecsPrefix + fmt.Sprintf("%04d", i)), Value: []byte(bad[i%len(bad)]), Created: 2, Revision: 2})
	}
	rejections, _ := r.rejections()
	for i, rejected := range rejections {
		want := bad[i%len(bad)]
		if i%len(bad) > 1 {
			want = ""
		}
		if rejected.Value != want {
			t.Errorf("of a value of %d bytes %d are kept; want %d", len(bad[i%len(bad)]), len(rejected.Value), len(want))
		}
	}
	kept := 0
	for _, e := range r.entries {
		kept += len(e.bad().Value)
	}
	if most := config.MaxRejections * config.MaxRejectedValue; kept > most {
		t.Errorf("%d bytes are kept; want %d at most", kept, most)
	}
	key := []byte(registry.SpecsPrefix + "0000")
	r.Put(Version{Key: key, Value: []byte("[1]"), Created: 2, Revision: 3})
	if rejections, _ := r.rejections(); rejections[0].Value != "[1]" || rejections[0].Revision != 3 {
		t.Errorf("after another bad value the first is %+v", rejections[0])
	}
}

func TestAFloodOfBadRecordsDoesNotFloodTheLog(t *testing.T) {
	log := recordstest.LogSince(t)
	synctest.Test(t, func(t *testing.T) {
		r := New(decode.Decoder{})
		for i := range 60_000 { // ten minutes, a hundred a second
			r.Put(v(2, int64(i+2), fmt.Sprint("bad ", i)))
			if i%3 == 2 {
				r.Put(v(2, int64(i+2), port(1+i%1000)))
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
