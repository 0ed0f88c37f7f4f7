package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// A script is a watch stream that says what it says, and then breaks.
type script struct {
	etcdserverpb.Watch_WatchClient
	lines []*etcdserverpb.WatchResponse
}

var errTorn = errors.New("the script is torn here")

// RecvMsg implements Watch_WatchClient.
func (s *script) RecvMsg(m any) error {
	if len(s.lines) == 0 {
		return errTorn
	}
	line, err := proto.Marshal(s.lines[0])
	if err != nil {
		return err
	}
	s.lines = s.lines[1:]
	return newMessageReader().Unmarshal(mem.BufferSlice{mem.SliceBuffer(line)}, m)
}

func TestWhatAWatchStreamSays(t *testing.T) {
	type response = etcdserverpb.WatchResponse
	created := &response{Created: true}
	events := func(fragment bool, revisions ...int64) *response {
		r := &response{Fragment: fragment}
		for _, revision := range revisions {
			r.Events = append(r.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{ModRevision: revision}})
		}
		return r
	}
	for _, test := range []struct {
		name  string
		lines []*response
		want  []string // the messages, then how it ends
		asks  int      // requests of its own
	}{
		{"events", []*response{created, events(false, 7), events(false, 8, 9)},
			[]string{"created", "[7]", "[8 9]", "torn"}, 0},
		{"fragments are put together", []*response{created, events(true, 7, 7), events(true, 7), events(false, 7, 8), events(false, 9)},
			[]string{"created", "[7 7 7 7 8]", "[9]", "torn"}, 0},
		{"half a response is none", []*response{created, events(true, 7)},
			[]string{"created", "torn"}, 0},
		{"refused", []*response{{Created: true, Canceled: true, WatchId: -1, CancelReason: "etcdserver: permission\ndenied"}},
			[]string{`watch cancelled: "etcdserver: permission\ndenied"`}, 0},
		{"cancelled", []*response{created, {Canceled: true, CancelReason: "why"}, events(false, 7)},
			[]string{"created", `watch cancelled: "why"`}, 0},
		{"compacted", []*response{created, {Canceled: true, CompactRevision: 17}},
			[]string{"created", "compacted at revision 17"}, 0},
		{"a challenge is answered, and taken back", []*response{created, {Created: true, WatchId: 1}, {Canceled: true, WatchId: 1}, events(false, 7)},
			[]string{"created", "created", "[7]", "torn"}, 1},
		{"a challenge is refused, which is an answer too", []*response{created, {Created: true, Canceled: true, WatchId: -1}, events(false, 7)},
			[]string{"created", "created", "[7]", "torn"}, 0},
		{"a watch with another number", []*response{{Created: true, WatchId: 5}, {Created: true, WatchId: 6}, {Canceled: true, WatchId: 6}, {Canceled: true, WatchId: 5}},
			[]string{"created", "created", "watch cancelled"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &watch{messages: make(chan message, 10), requests: make(chan *etcdserverpb.WatchRequest, 10)}
			err := w.receive(t.Context(), &script{lines: test.lines}, func() {})
			close(w.messages)
			var got []string
			for m := range w.messages {
				var revisions []int64
				for i := range m.events {
					revisions = append(revisions, m.events[i].kv.ModRevision)
				}
				switch {
				case m.created:
					got = append(got, "created")
				case m.at.IsZero():
					t.Errorf("%v does not say when it was received", m)
				default:
					got = append(got, fmt.Sprint(revisions))
				}
			}
			end := test.want[len(test.want)-1]
			if diff := cmp.Diff(test.want[:len(test.want)-1], got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if err == nil || !strings.Contains(err.Error(), end) {
				t.Errorf("it ended with %v; want %q", err, end)
			}
			if len(w.requests) != test.asks {
				t.Errorf("%d requests of its own; want %d", len(w.requests), test.asks)
			}
		})
	}
}

func TestAReaderThatStallsDoesNotHoldUpTheEndOfAWatch(t *testing.T) {
	w := &watch{messages: make(chan message), requests: make(chan *etcdserverpb.WatchRequest)}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTorn)
	if err := w.receive(ctx, &script{lines: []*etcdserverpb.WatchResponse{{Created: true}}}, func() {}); !errors.Is(err, errTorn) {
		t.Errorf("%v; want the cause", err)
	}
	if w.askProgress() || w.challenge() {
		t.Error("a request was taken that nobody sends")
	}
}

// A hush is a watch stream that says one thing, and then nothing while something is looked at.
type hush struct {
	script
	look func()
}

func (h *hush) RecvMsg(m any) error {
	if len(h.lines) == 0 {
		h.look()
	}
	return h.script.RecvMsg(m)
}

func TestASilentWatchKeepsNothingOfItsLastMessage(t *testing.T) {
	w := &watch{messages: make(chan message, 1), requests: make(chan *etcdserverpb.WatchRequest)}
	looked := false
	stream := &hush{script{lines: []*etcdserverpb.WatchResponse{{Events: []*mvccpb.Event{eventOf(1)}}}}, func() {
		looked = true
		m := <-w.messages
		events := weak.Make(&m.events[0])
		m = message{}
		for range 2 {
			runtime.GC()
		}
		if events.Value() != nil {
			t.Error("the events are still there")
		}
	}}
	if err := w.receive(t.Context(), stream, func() {}); !errors.Is(err, errTorn) || !looked {
		t.Errorf("%v, looked: %t", err, looked)
	}
}
