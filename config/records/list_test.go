package records

import (
	"fmt"
	"strings"
	"testing"

	"kubeproxy/registry/decode"
)

// What is decoded beside the reading is what would be decoded after it, value for value; and only the first list is.
func TestAFirstListIsDecodedPageByPage(t *testing.T) {
	var all []Version
	for i := range 10 {
		all = append(all, Version{Key: []byte(spec(fmt.Sprint("s", i))), Value: []byte([]string{port(100 + i), "bad"}[i/8])})
	}
	s := New(decode.Decoder{})
	l := s.NewList(0)
	for i := 0; i < len(all); i += 3 {
		l.Add(all[i:min(i+3, len(all))])
	}
	l.Wait()
	for i, got := range l.decoder.all() {
		want := decodeValue(decode.Decoder{}, string(all[i].Key), all[i].Value, nil)
		if got.key != want.key || (got.err == nil) != (i < 8) || (want.err == nil) != (got.err == nil) || !got.content.service.Equal(want.content.service) {
			t.Errorf("%s says %+v; want %+v", all[i].Key, got, want)
		}
	}
	if n := len(l.decoder.all()); n != len(all) {
		t.Errorf("%d values were decoded; want all %d", n, len(all))
	}
	s.Merge(l, 1, nil, 0)
	if l := s.NewList(0); l.decoder != nil {
		t.Error("a later list is decoded ahead, too: its values are known")
	}
}

// A source reads each page into the memory of the one before.
func TestNothingThatIsKeptOfAPageLiesInIt(t *testing.T) {
	for name, begin := range map[string]func(*State) List{
		"first list": func(s *State) List { return s.NewList(0) },
		"resync": func(s *State) List {
			s.Put(Version{Key: []byte(spec("known")), Value: []byte(port(1))})
			return s.NewList(0)
		},
		"without a state": func(*State) List { return List{} },
	} {
		l := begin(New(decode.Decoder{}))
		key, value := []byte(spec("a0")), []byte(port(10))
		for i := range 3 {
			copy(key, spec(fmt.Sprint("a", i)))
			copy(value, port(10+i))
			l.Add([]Version{{Key: key, Value: value}})
		}
		l.Wait()
		if len(l.News()) != 3 {
			t.Fatalf("%s: %d news; want 3", name, len(l.News()))
		}
		for i, v := range l.News() {
			if string(v.Key) != spec(fmt.Sprint("a", i)) || string(v.Value) != port(10+i) {
				t.Errorf("%s: news %d is %s: %s", name, i, v.Key, v.Value)
			}
		}
	}
}

func TestATallyNamesAFewKeysAndCountsTheOthers(t *testing.T) {
	var keys Tally
	for key := range strings.SplitSeq("a b c d e f g", " ") {
		keys.Add(key)
	}
	if got := keys.Differ(); got != `7 keys differ: "a", "b", "c", "d", "e" and 2 more` {
		t.Errorf("some keys: %s", got)
	}
}
