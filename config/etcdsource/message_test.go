package etcdsource

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// whole is a message that came in one small frame, and halves is one that came in two.
func whole(message []byte) mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(message)} }

func halves(message []byte) mem.BufferSlice {
	half := len(message) / 2
	return mem.BufferSlice{mem.SliceBuffer(message[:half]), mem.SliceBuffer(message[half:])}
}

// pooled is one that came in a large frame. The pool spoils what comes back to it.
func pooled(message []byte) mem.BufferSlice {
	frame := make([]byte, len(message), len(message)+1<<20)
	copy(frame, message)
	return mem.BufferSlice{mem.NewBuffer(&frame, spoiler{})}
}

type spoiler struct{ mem.NopBufferPool }

func (spoiler) Put(frame *[]byte) { clear(*frame) }

// hear reads a message as gRPC has it done.
func (m *message) hear(data mem.BufferSlice) error {
	defer data.Free()
	return newMessageReader().Unmarshal(data, m)
}

// differs tells how a message differs from what the library has read; empty if it does not.
func (m *message) differs(want *etcdserverpb.WatchResponse) string {
	switch h := want.GetHeader(); {
	case m.cluster != h.GetClusterId() || m.revision != h.GetRevision():
		return "header"
	case m.id != want.WatchId || m.created != want.Created || m.fragment != want.Fragment:
		return "watch"
	case m.canceled != want.Canceled || m.compacted != want.CompactRevision || m.reason != want.CancelReason:
		return "end of the watch"
	case len(m.events) != len(want.Events):
		return "number of events"
	}
	for i, ev := range want.Events {
		kv := ev.Kv
		if kv == nil {
			kv = new(mvccpb.KeyValue)
		}
		if !proto.Equal(&m.events[i].kv, kv) || m.events[i].deleted != (ev.Type == mvccpb.Event_DELETE) {
			return "event"
		}
	}
	return ""
}

// FuzzMessage: two messages, one after the other, say what the library reads in them. Where it refuses one, ours
// is an error or not: it does not look at what it does not use.
func FuzzMessage(f *testing.F) {
	header := &etcdserverpb.ResponseHeader{ClusterId: 1 << 63, MemberId: 2, Revision: 9, RaftTerm: 2}
	full := &mvccpb.KeyValue{Key: []byte("/a"), CreateRevision: 2, ModRevision: 300, Version: 1 << 40, Value: []byte("{}"), Lease: -1}
	set := &mvccpb.Event{Kv: full}
	gone := &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("/a"), ModRevision: 301}, PrevKv: full}
	two := wire(f, &etcdserverpb.WatchResponse{Header: header, Events: []*mvccpb.Event{set, gone}})
	part := wire(f, &etcdserverpb.WatchResponse{Header: header, WatchId: 3, Fragment: true, Events: []*mvccpb.Event{{}, gone, set}})
	for _, message := range [][]byte{
		nil, two, part, append(two, part...), part[:len(part)-3],
		wire(f, &etcdserverpb.WatchResponse{Header: header, Created: true, WatchId: -1}),
		wire(f, &etcdserverpb.WatchResponse{Canceled: true, CompactRevision: 7, CancelReason: "gone"}),
		[]byte("\x32\x01\xff"),                             // a reason that is not UTF-8
		[]byte("\x5a\x00\x5a\x02\x12\x00"),                 // events without a field, and with an empty key-value
		[]byte("\x5a\x08\x08\x81\x80\x80\x80\x10\x10\x01"), // an event of type 1 if one reads 32 bits of it; and a number for a key-value
		[]byte("\x5a\x03\x1a\x01\x0a"),                     // a key-value from before that is broken
		[]byte("\x5a\x05\x12\x03\x0b\x08\x01"),             // a group without an end in a key-value
		[]byte("\x0a\x04\x08\x01\x18\x02\x0a\x02\x18\x03"), // a header twice, the second without a cluster
		[]byte("\x18\x02\x20\x80\x02\x3a\x00"),             // booleans that are larger than one; a fragment that is text
	} {
		f.Add(two, message)
		f.Add(message, part)
		f.Add(part, message)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var m message
		for _, line := range [][]byte{first, second} {
			want := new(etcdserverpb.WatchResponse)
			wantErr := proto.Unmarshal(line, want)
			err := m.hear(halves(line))
			if wantErr != nil {
				return // which is the end of a stream
			}
			if err != nil {
				t.Fatalf("%q is an error: %v; want %v", line, err, want)
			}
			if what := m.differs(want); what != "" {
				t.Fatalf("%q is read as %+v; want %v: %s", line, m, want, what)
			}
		}
	})
}

func eventOf(i int) *mvccpb.Event {
	return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(spec(fmt.Sprint("a", i))), ModRevision: int64(i), Value: []byte(port(i))}}
}

// They wait for the session, up to 256 of them.
func TestAMessageStaysWhatItIsWhenTheNextOneComes(t *testing.T) {
	for name, came := range map[string]func([]byte) mem.BufferSlice{"in a frame": whole, "in two": halves, "in one of a pool": pooled} {
		var m message
		var waiting []message
		for i := range 3 {
			if err := m.hear(came(wire(t, &etcdserverpb.WatchResponse{Events: []*mvccpb.Event{eventOf(i)}}))); err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, m)
		}
		for i, m := range waiting {
			if what := m.differs(&etcdserverpb.WatchResponse{Events: []*mvccpb.Event{eventOf(i)}}); what != "" {
				t.Errorf("%s: message %d has another %s", name, i, what)
			}
		}
	}
}

func TestAMessageInOneSmallFrameIsNotCopied(t *testing.T) {
	var m message
	frame := wire(t, &etcdserverpb.WatchResponse{Events: []*mvccpb.Event{eventOf(1)}})
	if err := m.hear(whole(frame)); err != nil {
		t.Fatal(err)
	}
	clear(frame)
	if m.differs(&etcdserverpb.WatchResponse{Events: []*mvccpb.Event{eventOf(1)}}) == "" {
		t.Error("the message does not lie in its frame")
	}
}

// However many there are.
func TestTheEventsOfAMessageTakeOneAllocation(t *testing.T) {
	response := &etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 100}}
	for i := range 100 {
		response.Events = append(response.Events, eventOf(i))
	}
	data, codec := whole(wire(t, response)), newMessageReader()
	var m message
	if n := testing.AllocsPerRun(10, func() {
		if err := codec.Unmarshal(data, &m); err != nil || len(m.events) != 100 {
			t.Fatal(err, len(m.events))
		}
	}); n > 2 { // the race detector makes another
		t.Errorf("%v allocations for 100 events", n)
	}
}

func TestABadMessageIsAnErrorThatTellsWhere(t *testing.T) {
	line := wire(t, &etcdserverpb.WatchResponse{Events: []*mvccpb.Event{eventOf(1), eventOf(2)}})
	var m message
	if err := m.hear(whole(line[:len(line)-1])); err == nil || err.Error() != "a message of a watch, near event 1 of it: unexpected EOF" {
		t.Errorf("a message that was cut off: %v", err)
	}
	line[len(line)-len(port(2))-1]++ // the length of the last value
	if err := m.hear(whole(line)); err == nil || err.Error() != "a message of a watch, near event 2 of it: unexpected EOF" {
		t.Errorf("a value that is longer than its message: %v", err)
	}
	for _, line := range []string{
		"\x0a\x02\x08\x80",         // a number without an end in the header
		"\x5a\x02\x08\x80",         // in an event
		"\x5a\x04\x12\x02\x10\x80", // in a key-value
		"\x18",                     // and in the message
		"\x5b",                     // a group without an end
		"\x00\x00",                 // a field without a number
	} {
		if err := m.hear(whole([]byte(line))); err == nil {
			t.Errorf("%q is read as %+v", line, m)
		}
	}
}
