package behind

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAWatchIsGivenUpOnlyWhenItIsFarBehindByRevisionsAndBytes(t *testing.T) {
	limits := Limits{Revisions: 100, Bytes: 1000}
	told := func(revision int64, bytes int) func(*Gauge) error {
		return func(g *Gauge) error { return g.Told(revision, bytes) }
	}
	reached := func(revision int64) func(*Gauge) error {
		return func(g *Gauge) error {
			g.Reached(revision)
			return nil
		}
	}
	for _, test := range []struct {
		name  string
		steps []func(*Gauge) error
		want  string // of the error of the last step; empty: none
	}{
		{"in step", []func(*Gauge) error{told(10, 5000), reached(10), told(11, 5000), reached(11)}, ""},
		{"many bytes, few revisions", []func(*Gauge) error{told(10, 0), reached(110), told(11, 5000), told(12, 5000)}, ""},
		{"many revisions, few bytes: others wrote them", []func(*Gauge) error{told(10, 0), reached(9000), told(11, 500), told(12, 500)}, ""},
		{"many of both", []func(*Gauge) error{told(10, 0), reached(9000), told(11, 500), told(12, 501)},
			"the watch is 8988 revisions behind, at 12 of 9000, after 0 KiB more of changes"},
		{"what it told before does not count", []func(*Gauge) error{told(10, 5000), told(11, 5000), reached(9000), told(12, 1000)}, ""},
		{"it comes close to where etcd was", []func(*Gauge) error{told(10, 0), reached(500), told(11, 1000), told(400, 1), reached(500), told(450, 9000)}, ""},
		{"one revision less", []func(*Gauge) error{told(10, 0), reached(500), told(11, 1000), told(399, 1)}, "101 revisions behind, at 399 of 500"},
		{"it comes close, and falls behind again", []func(*Gauge) error{told(10, 0), reached(500), told(450, 900), reached(900), told(451, 900), told(452, 101)},
			"448 revisions behind, at 452 of 900"},
		{"etcd goes on meanwhile", []func(*Gauge) error{told(10, 0), reached(500), reached(600), told(20, 1001)}, "580 revisions behind, at 20 of 600"},
		{"an etcd that has gone back", []func(*Gauge) error{told(500, 0), reached(9), told(9, 5000)}, ""},
		{"nothing is known of it yet", []func(*Gauge) error{reached(9000), told(9000, 5000), told(9001, 5000)}, ""},
		{"no answer", []func(*Gauge) error{told(10, 0), reached(0), told(11, 5000)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := New(limits, time.Second)
			for i, step := range test.steps {
				err := step(g)
				switch last := i == len(test.steps)-1; {
				case !last && err != nil:
					t.Fatalf("step %d: %v; want no error before the last", i, err)
				case last && test.want == "" && err != nil, last && test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
					t.Errorf("%v; want %q", err, test.want)
				}
			}
		})
	}
}

func TestEtcdIsAskedForItsRevisionAfterASilenceAndOnce(t *testing.T) {
	g := New(Limits{}, 3*time.Second)
	began := time.Now()
	for _, test := range []struct {
		after time.Duration
		want  bool
	}{
		{time.Hour, false}, // the first word: nothing was expected before
		{time.Hour + time.Second, false},
		{time.Hour + 4*time.Second, false},
		{time.Hour + 64*time.Second, true},
		{time.Hour + 64*time.Second, false},
	} {
		if got := g.Stalled(began.Add(test.after)); got != test.want {
			t.Errorf("after %v: %v; want %v", test.after, got, test.want)
		}
	}
}

func TestTheDefaultsEndAWatchBeforeEtcdSendsMore(t *testing.T) {
	const window, quarter = 128 << 10, 4 // gRPC lets etcd send more when a quarter of the window was taken
	g := New(Limits{}, time.Second)
	if err := g.Told(1, 0); err != nil {
		t.Fatal(err)
	}
	g.Reached(60_000)
	const event = 800 // on the wire it is less: see the limit
	for taken := event; ; taken += event {
		switch err := g.Told(int64(1+taken/event), event); {
		case taken > window/quarter:
			t.Fatal("etcd sends more by now")
		case err != nil:
			if want := fmt.Sprint(60_000-1-taken/event, " revisions behind"); !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %s", err, want)
			}
			return
		}
	}
}
