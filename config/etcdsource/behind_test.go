package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/behind"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// The node takes nothing for a while, as if it were stopped. What it is sent fills its memory, the window and etcd's own queue, so
// that etcd would have to read the rest from its history.
func TestAWatchTooFarBehindIsGivenUpForAList(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	cfg := quick(etcd.URL())
	cfg.BehindRevisions, cfg.BehindBytes = 50, 1
	f := follow(t, cfg)
	f.await(t, "a:1 | ")
	log := logSince(t)

	f.mu.Lock() // no update is taken
	put(t, c, spec("a"), port(2))
	for i := range 20 { // events.MaxWaiting, and some
		put(t, c, fmt.Sprintf("%snodes/%d", registry.Prefix, i), strings.Repeat("x", 1<<20))
	}
	number, full := 2, time.Now()
	var revision int64
	for number < 300 || time.Since(full) < 4*cfg.ProbePeriod { // etcd's queue has 128
		number++
		revision = put(t, c, spec("a"), port(number))
	}
	f.mu.Unlock()

	f.await(t, fmt.Sprintf("a:%d | ", number))
	st := f.awaitStatus(t, "another session", func(st config.Status) bool { return st.Sessions == 2 && st.Revision >= revision })
	if ended(st)[Behind] != 1 {
		t.Errorf("sessions have ended by %v; want one that was behind", st.Ends)
	}
	if text := log(); strings.Count(text, "has to be read again: the watch is ") != 1 || !strings.Contains(text, " KiB more of changes: reading everything is faster") {
		t.Errorf("the log does not say once how far behind it was:\n%s", text)
	}
}

// What the stream has more than these bytes stays in it, and etcd sends no more while its window is full.
func TestAfterASilenceAWatchFarBehindIsTakenNoMoreFrom(t *testing.T) {
	for _, test := range []struct {
		name    string
		reached int64 // what etcd answers
		left    int   // lines that are not taken
		end     string
	}{
		{"far behind", 9000, 6, "the watch is 8986 revisions behind, at 14 of 9000"},
		{"not far", 100, 0, "torn"},
		{"no answer", 0, 0, "torn"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatch()
				w.gauge = behind.New(behind.Limits{Revisions: 100, Bytes: 1000}, 3*time.Second)
				asked := 0
				w.reached = func(context.Context) int64 {
					asked++
					return test.reached
				}
				stream := &hush{script{lines: []*etcdserverpb.WatchResponse{{Created: true, Header: &etcdserverpb.ResponseHeader{Revision: 10}}}}, func() {}}
				for i := range 10 {
					stream.lines = append(stream.lines, &etcdserverpb.WatchResponse{Events: []*mvccpb.Event{written("a", int64(11+i), 0)}})
				}
				stream.look = func() {
					if len(stream.lines) == 10 {
						time.Sleep(time.Minute) // the process is stopped
					}
				}
				err := w.receive(t.Context(), stream, func() {})
				if err == nil || !strings.Contains(err.Error(), test.end) || len(stream.lines) != test.left || asked != 1 {
					t.Errorf("%v, with %d lines left, after %d questions; want %q, %d and 1", err, len(stream.lines), asked, test.end, test.left)
				}
				if far := test.left > 0; far != (causeOf(err) == Behind) || far == errors.Is(err, errTorn) {
					t.Errorf("it ended by %v", causeOf(err))
				}
			})
		})
	}
}

// Etcd's header says how far etcd is, and an answer to a challenge says nothing of the watch.
func TestAWatchThatIsNeverSilentIsFoundToBeFarBehind(t *testing.T) {
	at := func(revision int64, r *etcdserverpb.WatchResponse) *etcdserverpb.WatchResponse {
		r.Header = &etcdserverpb.ResponseHeader{Revision: revision}
		return r
	}
	old := func(revision int64) []*mvccpb.Event { return []*mvccpb.Event{written("a", revision, 900)} }
	for _, test := range []struct {
		name  string
		lines []*etcdserverpb.WatchResponse // after it has fallen behind
		end   string
	}{
		{"with the registry", []*etcdserverpb.WatchResponse{
			at(5000, &etcdserverpb.WatchResponse{WatchId: 1, Created: true}),
			at(5000, &etcdserverpb.WatchResponse{Events: old(13)}),
		}, "the watch is 4987 revisions behind, at 13 of 5000"},
		{"with a key that is watched beside it", []*etcdserverpb.WatchResponse{at(5000, &etcdserverpb.WatchResponse{WatchId: firstID, Events: old(14)})},
			"the watch is 4988 revisions behind, at 12 of 5000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWatch()
			w.gauge = behind.New(behind.Limits{Revisions: 100, Bytes: 1000}, time.Hour)
			stream := &script{lines: append([]*etcdserverpb.WatchResponse{
				at(10, &etcdserverpb.WatchResponse{Created: true}),
				at(11, &etcdserverpb.WatchResponse{Events: old(11)}),
				at(5000, &etcdserverpb.WatchResponse{Events: old(12)}), // from etcd's history
			}, test.lines...)}
			err := w.receive(t.Context(), stream, func() {})
			if err == nil || causeOf(err) != Behind || !strings.Contains(err.Error(), test.end) {
				t.Errorf("%v; want it given up, for %s", err, test.end)
			}
		})
	}
}

func TestNodesThatWereFarBehindListOverTwoSeconds(t *testing.T) {
	far := remote.Because(Behind, errTorn)
	early, late := maxSpread, time.Duration(0)
	for range 1000 {
		pause := spread(far)
		early, late = min(early, pause), max(late, pause)
	}
	if early < 0 || early > maxSpread/10 || late < maxSpread*9/10 || late > maxSpread {
		t.Errorf("between %v and %v; want 0 and %v", early, late, maxSpread)
	}
	if pause := spread(remote.Because(Stale, errTorn)); pause != 0 {
		t.Errorf("%v after another end", pause)
	}
}
