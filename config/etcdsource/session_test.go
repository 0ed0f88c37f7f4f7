package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
)

// standing is a session in the middle of its life, without any goroutine or connection.
func standing(t testing.TB) *session {
	t.Helper()
	s, err := New(quick("http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	s.out = make(chan registry.Update, 10)
	return &session{
		Source:  s,
		ctx:     t.Context(),
		watch:   newWatch(),
		created: true,
		stood:   time.Now(),
		next:    time.NewTimer(time.Hour),
		proof:   time.NewTimer(time.Hour),
		probe:   probe{timer: time.NewTimer(time.Hour)},
	}
}

func TestOnlyTheAnswerToTheLastChallengeProvesAList(t *testing.T) {
	x := standing(t)
	out := x.out
	answered := delivery{at: time.Now(), notices: []notice{{created: true}}}

	x.touched = make(map[string]int64)
	x.prove(listed(5))
	if err := x.unproven(); err != nil || x.unproved != nil || x.touched != nil {
		t.Fatalf("an unanswered challenge after the beginning: %v; want the list given up, and nothing else", err)
	}
	x.prove(listed(6))
	if err := x.receive(answered); err != nil || len(out) != 0 {
		t.Fatalf("the late answer to the first challenge: %v, %d updates; want none", err, len(out))
	}
	if err := x.receive(answered); err != nil || len(out) != 1 {
		t.Fatalf("the answer to the second: %v, %d updates; want one", err, len(out))
	}
	if err := x.receive(answered); err != nil || len(out) != 1 {
		t.Fatalf("an answer that nobody asked for: %v, %d updates; want no more", err, len(out))
	}

	// A stream that takes no more requests is stuck. Answers to earlier ones prove nothing.
	x.watch.requests = nil
	x.prove(listed(7))
	if err := x.receive(answered); err != nil || len(out) != 1 {
		t.Fatalf("an answer without a challenge: %v, %d updates; want no more", err, len(out))
	}
}

func TestASessionWhoseWatchDoesNotMeetTheChallengeIsGivenUp(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	dropped := 0
	m.hook(func(m *middleman) {
		m.onAsk = func(req *etcdserverpb.WatchRequest) bool {
			if create := req.GetCreateRequest(); create != nil && create.RangeEnd == nil && dropped == 0 {
				dropped++
				return false
			}
			return true
		}
	})
	cfg := quick(m.url)
	cfg.RequestTimeout = 500 * time.Millisecond
	f := follow(t, cfg)
	f.await(t, "a:1 | ")
	m.hook(func(*middleman) {
		if dropped != 1 {
			t.Error("no challenge was put")
		}
	})
}

func TestAProbeKeepsItsConnectionOnlyWhereItIsNeededOften(t *testing.T) {
	for _, answers := range []bool{false, true} {
		x := standing(t)
		x.answers, x.stage = answers, asked
		x.probes.ask(t.Context(), patience, func(context.Context, *client, func()) (listing, error) { return listed(5), nil })
		if err := x.probed(<-x.probes.answers); err != nil {
			t.Fatal(err)
		}
		if kept := x.probes.client != nil; kept == answers {
			t.Errorf("with an etcd that answers (%v) the connection was kept: %v", answers, kept)
		}
		x.probes.close()
	}
}

func TestTheStatusSaysSinceWhenAndWhyEtcdIsGone(t *testing.T) {
	x := standing(t)
	x.trouble(errors.New("gone"))
	since := x.Status().Since
	x.trouble(errors.New("gone\nfor good"))
	if st := x.Status(); st.Connected || st.Since != since || st.Reason != "gone?for good" {
		t.Errorf("%+v; want not connected, since the first time, for the last reason", st)
	}
	x.well()
	if st := x.Status(); !st.Connected || !st.Since.After(since) || st.Reason != "" || st.Heard.IsZero() {
		t.Errorf("%+v; want connected, since now", st)
	}
}

// No etcd sends an event without a key-value; its revision reads as 0.
func TestAnEventWithoutAKeyValueTakesNothingBack(t *testing.T) {
	x, out := standing(t), make(chan registry.Update, 1)
	x.out = out
	said := delivery{at: time.Now(), events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte(spec("a")), CreateRevision: 7, ModRevision: 7, Value: []byte(port(1))}}, {}}}
	if err := x.receive(said); err != nil {
		t.Fatal(err)
	}
	if u := <-out; u.Revision != 7 || len(u.Services) != 1 || x.applied != 7 || x.heard != 7 {
		t.Errorf("update %+v, applied %d, heard of %d; want one service, and 7", u, x.applied, x.heard)
	}
}

// However soon a deletion follows what says that it is meant, a node does not take it for the end of a lease.
func TestADeletionDoesNotOvertakeWhatSaysThatItIsMeant(t *testing.T) {
	const value = `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"labels":{"kubernetes.io/service-name":"a"}},"addressType":"IPv4","ports":[{"name":"","port":1}],"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":%v}}]}`
	key := []byte(registry.EndpointSlicesPrefix + "default/a-1")
	put := func(revision, lease int64, ready bool) *mvccpb.Event {
		return &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: &mvccpb.KeyValue{Key: key, Value: fmt.Appendf(nil, value, ready), CreateRevision: 2, ModRevision: revision, Lease: lease}}
	}
	deleted := &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: key, ModRevision: 4}}
	for what, test := range map[string]struct {
		events []*mvccpb.Event
		kept   int
	}{
		"the end of a lease":         {[]*mvccpb.Event{deleted}, 1},
		"a put, and the lease's end": {[]*mvccpb.Event{put(3, 7, true), deleted}, 1},
		"taken off the lease":        {[]*mvccpb.Event{put(3, 0, true), deleted}, 0},
		"said that it is not ready":  {[]*mvccpb.Event{put(3, 7, false), deleted}, 0},
	} {
		x := standing(t)
		for _, events := range [][]*mvccpb.Event{{put(2, 7, true)}, test.events} {
			if err := x.apply(events, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if st := x.Status(); st.Kept != test.kept {
			t.Errorf("%s: %d services are kept; want %d", what, st.Kept, test.kept)
		}
	}
}
