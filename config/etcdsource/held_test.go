package etcdsource

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/config/etcdsource/events"
	"kubeproxy/config/records"
	"kubeproxy/registry"
)

// followingSession is a standing session that watches the key, and what it sends.
func followingSession(t *testing.T) (*session, <-chan registry.Update) {
	t.Helper()
	x := standing(t)
	source, err := New(mayFollow("http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan registry.Update, 10)
	x.Source = source
	x.out, x.watches, x.refused = out, map[string]int64{leader: firstID}, make(map[string]bool)
	x.ended = make(map[string]bool)
	for _, v := range theirs("m1", "m2") {
		x.records.Put(v)
	}
	return x, out
}

// theirs are the records of such a session; its endpoints have these names.
func theirs(names ...string) (all []records.Version) {
	for _, record := range [][2]string{{spec("pg"), electing(leader)}, {ends("pg"), called(names...)}} {
		all = append(all, records.Version{Key: []byte(record[0]), Value: []byte(record[1]), Created: 1, Revision: 1})
	}
	return all
}

// changed is a change of a key at a revision.
func changed(key, value string, revision int64) delivery {
	return delivery{at: time.Now(), events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: 1, ModRevision: revision}}}}
}

// tells is an answer of etcd: it has told of everything up to a revision.
func tells(revision int64) delivery {
	return delivery{at: time.Now(), notices: []notice{{answer: true, revision: revision}}}
}

func TestChangesWaitForWhatOtherWatchesHaveToTell(t *testing.T) {
	x, out := followingSession(t)
	hears := func(d delivery, want ...int64) {
		t.Helper()
		if err := x.receive(d); err != nil {
			t.Fatal(err)
		}
		var got []int64
		for len(out) > 0 {
			got = append(got, (<-out).Revision)
		}
		if !slices.Equal(got, want) {
			t.Errorf("updates of the revisions %v; want %v", got, want)
		}
	}
	hears(changed(ends("pg"), called("m2", "m1"), 7))
	hears(changed(leader, "m2", 7))
	hears(changed(spec("other"), port(9), 9))
	hears(tells(8), 7)
	hears(changed(leader, "m1", 8)) // late, as etcd never is
	hears(tells(9), 9)
	if len(x.watch.requests) == 0 {
		t.Error("etcd was not asked how far it has told")
	}

	// An etcd that does not answer holds nothing up for longer than a period.
	hears(changed(leader, "m2", 10))
	x.heldAt = time.Now().Add(-x.cfg.ProbePeriod)
	if err := x.period(); err != nil {
		t.Fatal(err)
	}
	if len(out) != 1 || (<-out).Revision != 10 {
		t.Error("a change was not applied after a period")
	}

	// Nor does memory grow meanwhile.
	hears(changed(spec("other"), strings.Repeat("x", events.MaxWaiting), 11), 11)
}

func TestWhatEtcdStillTellsOfIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, out := followingSession(t)
		x.stood = time.Now()
		start := time.Now()
		hears := func(d delivery) {
			t.Helper()
			if err := x.receive(d); err != nil {
				t.Fatal(err)
			}
		}
		hears(changed(ends("pg"), called("m1", "m2"), 7))
		time.Sleep(x.cfg.ProbePeriod - 1)
		hears(changed(ends("pg"), called("m2", "m1"), 9))
		hears(tells(8))
		if len(out) != 1 || (<-out).Revision != 7 {
			t.Fatal("what etcd has told of in full is not applied")
		}

		// Half of the transaction 9 is held, and etcd has answered in time.
		time.Sleep(time.Nanosecond)
		if err := x.period(); err != nil || len(out) != 0 {
			t.Fatalf("error %v, %d updates; want none before etcd has had a period to tell of the rest", err, len(out))
		}
		time.Sleep(x.cfg.ProbePeriod)
		x.watch.inbox.add(changed(leader, "m2", 9)) // the other half is queued, and not read yet
		if err := x.period(); err != nil || len(out) != 0 {
			t.Fatalf("error %v, %d updates; want none while the rest waits", err, len(out))
		}
		hears(x.watch.inbox.take())
		hears(tells(9))
		if len(out) != 1 {
			t.Fatalf("%d updates; want one", len(out))
		}
		if u := <-out; u.Revision != 9 || u.Received.Sub(start) != x.cfg.ProbePeriod-1 {
			t.Errorf("update of revision %d, received after %v; want revision 9, and when the first half came", u.Revision, u.Received.Sub(start))
		} else if len(u.Endpoints) != 1 || u.Endpoints[0].Value.Of("").Len() != 1 {
			t.Errorf("the update has %v; want both halves", u.Endpoints)
		}

		// An answer that is queued, and not read yet, is in time.
		hears(changed(ends("pg"), called("m1", "m2"), 11))
		time.Sleep(x.cfg.ProbePeriod)
		x.watch.inbox.add(tells(10))
		if err := x.period(); err != nil || len(out) != 0 {
			t.Errorf("error %v, %d updates; want none", err, len(out))
		}

		// Of an etcd that tells of ever more, and never how far, a period more is waited for.
		time.Sleep(x.cfg.ProbePeriod)
		if err := x.period(); err != nil || len(out) != 1 {
			t.Errorf("error %v, %d updates; want one though something waits again", err, len(out))
		}
	})
}

func TestWhatIsHeldIsNotOvertakenWhenTheLastKeyIsFollowedNoMore(t *testing.T) {
	x, out := followingSession(t)
	for _, d := range []delivery{changed(spec("pg"), port(9), 7), changed(ends("pg"), called("m1", "m2"), 8), tells(7)} {
		if err := x.receive(d); err != nil {
			t.Fatal(err)
		}
	}
	if u := <-out; u.Revision != 7 || len(x.watches) != 0 {
		t.Fatalf("update of revision %d, watches %v; want revision 7 and none", u.Revision, x.watches)
	}
	if err := x.receive(changed(ends("pg"), called("m2", "m1"), 9)); err != nil || len(out) > 0 {
		t.Fatalf("error %v, %d updates; want none before what happened at revision 8", err, len(out))
	}
	if err := x.receive(tells(9)); err != nil || len(out) != 1 || (<-out).Revision != 9 {
		t.Errorf("error %v; want one update, of revision 9", err)
	}
	if err := x.receive(changed(spec("pg"), port(10), 10)); err != nil || len(out) != 1 {
		t.Errorf("error %v, %d updates; want one at once, as nothing is held", err, len(out))
	}
}

// TestWhatCameBeforeTheFirstListWaitsForOtherWatchesToo: the rest of its transaction may still be under way, however long the list took.
func TestWhatCameBeforeTheFirstListWaitsForOtherWatchesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, out := followingSession(t)
		first := listed(5)
		x.stood, x.opening, x.gap = time.Time{}, &first, new(gap)
		if err := x.receive(changed(ends("pg"), called("m2", "m1"), 7)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour) // the timer of the probe is over
		if err := x.open(); err != nil || len(out) != 1 || !(<-out).Set {
			t.Fatalf("error %v, %d more updates; want the SET alone", err, len(out))
		}
		if len(x.watch.requests) != 1 {
			t.Errorf("etcd was asked %d times how far it has told; want once", len(x.watch.requests))
		}
		select {
		case <-x.timer.C:
			t.Error("the period in which etcd may answer is over at once")
		default:
		}
		for _, d := range []delivery{changed(leader, "m2", 7), tells(7)} {
			if err := x.receive(d); err != nil {
				t.Fatal(err)
			}
		}
		if len(out) != 1 || (<-out).Revision != 7 {
			t.Error("what was held is not applied in one step, once etcd has told of all")
		}
	})
}

// A token expires, or goes with a new password, while the stream stands that began with it. Only a new stream logs in anew.
