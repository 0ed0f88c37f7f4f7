package events

import (
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

func event(key string, revision int64) *mvccpb.Event {
	return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision, Value: make([]byte, 10)}}
}

func revisions(events []*mvccpb.Event) (list []int64) {
	for _, ev := range events {
		list = append(list, ev.Kv.ModRevision)
	}
	return list
}

func TestOfEachKeyTheNewestEventIsKept(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []*mvccpb.Event
		want   []int64
	}{
		{"keys in order, each once", []*mvccpb.Event{event("a", 5), event("b", 5), event("c", 5)}, []int64{5, 5, 5}},
		{"keys in order, one twice", []*mvccpb.Event{event("a", 5), event("b", 5), event("b", 6), event("c", 6)}, []int64{5, 6, 6}},
		{"a key that comes back", []*mvccpb.Event{event("a", 5), event("b", 5), event("a", 6)}, []int64{5, 6}},
	} {
		kept, freed := Newest(c.events)
		if got := revisions(kept); !slices.Equal(got, c.want) {
			t.Errorf("%s: events of revisions %v are kept; want %v", c.name, got, c.want)
		}
		if want := Bytes(c.events) - Bytes(kept); freed != want {
			t.Errorf("%s: %d bytes freed; want %d", c.name, freed, want)
		}
	}
}

func TestTheLastTransactionIsCutOff(t *testing.T) {
	for _, c := range []struct{ revisions, whole, begun []int64 }{
		{nil, nil, nil},
		{[]int64{5}, nil, []int64{5}},
		{[]int64{5, 5}, nil, []int64{5, 5}},
		{[]int64{4, 5, 6, 6}, []int64{4, 5}, []int64{6, 6}},
	} {
		var list []*mvccpb.Event
		for _, revision := range c.revisions {
			list = append(list, event("a", revision))
		}
		whole, begun := Split(list)
		if !slices.Equal(revisions(whole), c.whole) || !slices.Equal(revisions(begun), c.begun) {
			t.Errorf("%v: %v and %v; want %v and %v", c.revisions, revisions(whole), revisions(begun), c.whole, c.begun)
		}
	}
}
