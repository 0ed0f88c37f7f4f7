package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/config/etcdsource/events"
)

// written is an event of a key of which only the size matters.
func written(key string, revision int64, size int) *mvccpb.Event {
	return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(ends(key)), CreateRevision: 1, ModRevision: revision, Value: make([]byte, size)}}
}

func revisions(events []*mvccpb.Event) (list []int64) {
	for _, ev := range events {
		list = append(list, ev.Kv.ModRevision)
	}
	return list
}

func TestWhatWaitsForTheSessionIsBoundedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const value = 1_400_000
		b := newInbox()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		put := func(key string, revision int64) error {
			return b.put(ctx, delivery{at: time.Now(), events: []*mvccpb.Event{written(key, revision, value)}})
		}
		var revision int64
		for revision < 400 { // four keys, as fast as can be
			revision++
			if err := put(fmt.Sprint(revision%4), revision); err != nil {
				t.Fatal(err)
			}
			if b.waiting.Size > events.MaxWaiting+value {
				t.Fatalf("%d bytes wait", b.waiting.Size)
			}
		}
		if b.blockedOnce() {
			t.Error("a few keys blocked the stream")
		}
		d := b.take()
		if got := revisions(d.events); got[len(got)-1] != 400 || len(got) > 12 {
			t.Errorf("the events of revisions %v wait; want the newest, which are few", got)
		}
		for i := 1; i < len(d.events); i++ {
			if d.events[i].Kv.ModRevision <= d.events[i-1].Kv.ModRevision {
				t.Errorf("order %v", revisions(d.events))
			}
		}

		returned := make(chan error) // more keys than there is room for
		go func() {
			for {
				revision++
				if err := put(fmt.Sprint("key", revision), revision); err != nil {
					returned <- err
					return
				}
			}
		}()
		synctest.Wait()
		blockedAt := revision
		if n := blockedAt - 400; n != 12 || !b.blockedOnce() {
			t.Errorf("the stream was read for %d values of different keys; want 12", n)
		}
		if n := len(b.take().events); n != 12 {
			t.Errorf("%d events were taken; want 12", n)
		}
		synctest.Wait()
		if revision != blockedAt+12 {
			t.Errorf("after that it was read for %d more; want 12", revision-blockedAt)
		}
		cancel()
		if err := <-returned; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// deliver hands events to a session that has nothing else to do.
func (x *session) deliver(t *testing.T, events ...*mvccpb.Event) {
	t.Helper()
	if err := x.receive(delivery{at: time.Now(), events: events}); err != nil {
		t.Fatal(err)
	}
}

func value(key string, revision int64, value string) *mvccpb.Event {
	ev := written(key, revision, 0)
	ev.Kv.Value = []byte(value)
	return ev
}

func TestOfAKeyThatIsWrittenOftenTheNewestGoodValueIsInForce(t *testing.T) {
	for _, test := range []struct {
		values []string
		want   string // the endpoint in force
	}{
		{[]string{addrs("10.0.0.2:1"), addrs("10.0.0.3:1")}, "10.0.0.3:1"},
		{[]string{addrs("10.0.0.2:1"), "{"}, "10.0.0.2:1"}, // which the watch gave, too
		{[]string{addrs("10.0.0.2:1"), "{", "[", addrs("10.0.0.3:1"), "x"}, "10.0.0.3:1"},
		{[]string{"{", "["}, "10.0.0.1:1"},
		{[]string{"{", addrs("10.0.0.2:1")}, "10.0.0.2:1"},
	} {
		x := standing(t)
		x.deliver(t, value("a", 2, addrs("10.0.0.1:1")))
		var events []*mvccpb.Event
		for i, v := range test.values {
			events = append(events, value("a", int64(3+i), v))
		}
		events = append(events, value("b", 99, addrs("10.0.0.9:1")))
		x.deliver(t, events...)
		for _, c := range x.records.Update(true, 99, time.Now()).Endpoints {
			if got := fmt.Sprint(c.Value.Of("")); c.Name.Name == "a" && got != "["+test.want+"]" {
				t.Errorf("after %q %v is in force; want %s", test.values, got, test.want)
			}
		}
		if st := x.Status(); st.Revision != 99 || st.Endpoints != 2 {
			t.Errorf("%+v; want both endpoints, at the last revision", st)
		}
	}
}

func TestAValueThatWasOvertakenIsNotDecoded(t *testing.T) {
	x := standing(t)
	log := logSince(t)
	x.deliver(t, value("a", 2, "{"), value("a", 3, addrs("10.0.0.1:1")))
	if text := log(); strings.Contains(text, "bad value") {
		t.Errorf("it was: %s", text)
	}
}
