package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/config/etcdsource/behind"
	"kubeproxy/config/etcdsource/events"
)

// A script is a watch stream that says what it says, and then breaks.
type script struct {
	etcdserverpb.Watch_WatchClient
	lines []*etcdserverpb.WatchResponse
}

var errTorn = errors.New("the script is torn here")

// Recv implements Watch_WatchClient.
func (s *script) Recv() (*etcdserverpb.WatchResponse, error) {
	if len(s.lines) == 0 {
		return nil, errTorn
	}
	line := s.lines[0]
	s.lines[0], s.lines = nil, s.lines[1:]
	return line, nil
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
		{"fragments with whole transactions do not wait for the last one", []*response{created, events(true, 7, 8), events(true, 8, 9), events(true, 9), events(false, 10)},
			[]string{"created", "[7]", "[8 8]", "[9 9 10]", "torn"}, 0},
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
			w := newWatch()
			var got []string
			stream := &hush{script{lines: test.lines}, func() {
				d := w.inbox.take()
				for _, n := range d.notices {
					if n.created {
						got = append(got, "created")
					}
				}
				var revisions []int64
				for _, ev := range d.events {
					revisions = append(revisions, ev.Kv.ModRevision)
				}
				if len(revisions) > 0 {
					got = append(got, fmt.Sprint(revisions))
				}
				if d.at.IsZero() && len(d.events)+len(d.notices) > 0 {
					t.Errorf("%v does not say when it was received", d)
				}
			}}
			err := w.receive(t.Context(), stream, func() {})
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
	w := newWatch()
	w.requests = nil
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTorn)
	large := &etcdserverpb.WatchResponse{Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Value: make([]byte, events.MaxWaiting)}}}}
	if err := w.receive(ctx, &script{lines: []*etcdserverpb.WatchResponse{large, large}}, func() {}); !errors.Is(err, errTorn) {
		t.Errorf("%v; want the cause", err)
	}
	if w.askProgress() || w.challenge() {
		t.Error("a request was taken that nobody sends")
	}
}

// newWatch is one without a stream.
func newWatch() *watch {
	return &watch{inbox: newInbox(), over: make(chan struct{}), requests: make(chan *etcdserverpb.WatchRequest, 10), gauge: behind.New(behind.Limits{}, time.Hour)}
}

// A hush is a watch stream before each message of which something is looked at.
type hush struct {
	script
	look func()
}

func (h *hush) Recv() (*etcdserverpb.WatchResponse, error) {
	h.look()
	return h.script.Recv()
}

func TestASilentWatchKeepsNothingOfItsLastMessage(t *testing.T) {
	w := newWatch()
	looked := 0
	var events weak.Pointer[mvccpb.Event]
	stream := new(hush)
	stream.lines = []*etcdserverpb.WatchResponse{{Events: []*mvccpb.Event{eventOf(1)}}}
	stream.look = func() {
		if looked++; looked == 1 {
			events = weak.Make(stream.lines[0].Events[0])
			return
		}
		w.inbox.take()
		for range 2 {
			runtime.GC()
		}
		if events.Value() != nil {
			t.Error("the events are still there")
		}
	}
	if err := w.receive(t.Context(), stream, func() {}); !errors.Is(err, errTorn) || looked != 2 {
		t.Errorf("%v, looked %d times", err, looked)
	}
}

func eventOf(i int) *mvccpb.Event {
	return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(spec(fmt.Sprint("a", i))), ModRevision: int64(i), Value: []byte(port(i))}}
}
