package etcdsource

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// behindIt is a session whose first list was asked for just now.
func behindIt(t *testing.T) *session {
	x := standing(t)
	x.current(time.Now())
	return x
}

func progress(revision int64) delivery {
	return delivery{at: time.Now(), notices: []notice{{answer: true, revision: revision}}}
}

func TestWhatTheWatchTellsDoesNotMakeTheStateCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := behindIt(t)
		listed := time.Now()
		for i := range 8 { // a watch that is busy, and behind
			time.Sleep(250 * time.Millisecond)
			x.deliver(t, value("a", int64(2+i), addrs("10.0.0.1:1")))
		}
		if st := x.Status(); !st.Current.Equal(listed) || !st.Heard.Equal(time.Now()) {
			t.Errorf("current %v after the list; want 0", st.Current.Sub(listed))
		}
	})
}

func TestAnAnswerMakesTheStateAsCurrentAsItsQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := behindIt(t)
		asked := time.Now()
		if err := x.period(); err != nil || len(x.watch.requests) != 1 {
			t.Fatalf("%v, %d requests; want one after a period", err, len(x.watch.requests))
		}
		time.Sleep(7 * time.Second) // the answer waits behind large values
		if err := x.receive(progress(9)); err != nil {
			t.Fatal(err)
		}
		if st := x.Status(); !st.Current.Equal(asked) {
			t.Errorf("current since %v; want since the request", time.Since(st.Current))
		}
		if err := x.receive(progress(9)); err != nil { // to no request
			t.Fatal(err)
		}
		if st := x.Status(); !st.Current.Equal(asked) {
			t.Errorf("current since %v; want since the request", time.Since(st.Current))
		}
	})
}

func TestABusyWatchThatDoesNotAnswerIsComparedWithWhatEtcdHasReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := behindIt(t)
		listed := time.Now()
		x.asked = listed // never answered
		time.Sleep(time.Second)
		read := time.Now()
		x.readAt = read // as period does
		if err := x.probed(answer{listing: listing{revision: 5}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		x.deliver(t, value("a", 4, addrs("10.0.0.1:1")))
		if st := x.Status(); !st.Current.Equal(listed) {
			t.Errorf("current since %v at revision 4; etcd had reached 5", time.Since(st.Current))
		}
		x.deliver(t, value("a", 5, addrs("10.0.0.2:1")))
		if st := x.Status(); !st.Current.Equal(read) || !x.asked.IsZero() {
			t.Errorf("current since %v; want since the read, and another request", time.Since(st.Current))
		}
	})
}

func TestABusyWatchIsAskedForProgressEachPeriod(t *testing.T) {
	x := standing(t)
	for i := range 3 {
		if err := x.period(); err != nil {
			t.Fatal(err)
		}
		if n := len(x.watch.requests); n != i+1 {
			t.Fatalf("%d requests after %d periods", n, i+1)
		}
		x.deliver(t, value("a", int64(2+i), addrs("10.0.0.1:1")))
		if x.stage != calm {
			t.Fatal("it speaks, and is taken for silent")
		}
		if err := x.receive(progress(int64(2 + i))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAWatchFarBehindMoreThanMemoryHoldsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := behindIt(t)
		x.watch.inbox.blocked = true
		time.Sleep(maxBehind)
		if err := x.period(); err != nil {
			t.Fatalf("after %v: %v", maxBehind, err)
		}
		time.Sleep(time.Second)
		x.watch.inbox.blocked = true
		err := x.period()
		if err == nil || causeOf(err) != Stale || !strings.Contains(err.Error(), "the watch is 11s behind") {
			t.Errorf("%v; want the end of the session", err)
		}
	})
}

// What the watch told while the list was read did not fit into memory, and the list took longer than a watch may be behind.
func TestTheTimeOfTheFirstListDoesNotCountAgainstTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := standing(t)
		x.stood = time.Time{}
		x.timer.Reset(x.cfg.ProbePeriod)
		x.probes.busy = true // so that no read is sent
		x.watch.inbox.blocked = true
		l := listing{revision: 5, asked: time.Now()}
		time.Sleep(maxBehind + 2*time.Second)
		if err := x.use(l); err != nil || x.stood.IsZero() {
			t.Fatalf("%v; want the list in force", err)
		}
		select {
		case <-x.timer.C:
			t.Error("the first period is over when it begins")
		default:
		}
		if x.watch.inbox.blocked {
			t.Error("that memory was full before the list was in force still counts")
		}
		for opened := time.Now(); time.Since(opened) < maxBehind; { // the watch does not answer, and fills the memory again and again
			<-x.timer.C
			x.watch.inbox.blocked = true
			if err := x.period(); err != nil {
				t.Fatalf("%v after the list was in force: %v", time.Since(opened), err)
			}
			x.stir()
		}
		<-x.timer.C
		x.watch.inbox.blocked = true
		if err := x.period(); causeOf(err) != Stale || !strings.Contains(err.Error(), "the watch is 22s behind") {
			t.Errorf("%v; want the end of the session", err)
		}
	})
}

// A long period lies between two questions, so the state is as old as that although each of them was answered.
func TestAWatchIsNotBehindThatHasAnsweredWhatItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := behindIt(t)
		for range 3 {
			time.Sleep(2 * maxBehind)
			x.watch.inbox.blocked = true
			if err := x.period(); err != nil {
				t.Fatal(err)
			}
			if err := x.receive(progress(9)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAReadOfAnEtcdThatIsNotWhatItWasDoesNotMakeTheStateCurrent(t *testing.T) {
	for _, test := range []struct {
		name  string
		says  listing
		stage stage // calm: the watch has spoken meanwhile
		ends  bool
	}{
		{"it went back", listing{cluster: 1, revision: 7}, reading, true},
		{"it went back, and the watch has spoken", listing{cluster: 1, revision: 7}, calm, false},
		{"another cluster", listing{cluster: 2, revision: 100}, reading, true},
		{"another cluster, and the watch has spoken", listing{cluster: 2, revision: 100}, calm, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := behindIt(t)
			listed := x.Status().Current
			x.watched, x.heard, x.applied = 1, 100, 100
			x.read()
			<-x.probes.answers // of this address, where there is no etcd
			x.probes.busy = false
			x.stage = test.stage
			err := x.probed(answer{listing: test.says})
			if test.ends != (err != nil) || test.ends && causeOf(err) != WentBack {
				t.Errorf("%v; want an end: %v", err, test.ends)
			}
			x.deliver(t, value("a", 101, addrs("10.0.0.1:1")))
			if st := x.Status(); !st.Current.Equal(listed) {
				t.Errorf("current %v after the list; want 0", st.Current.Sub(listed))
			}
		})
	}
}

func TestAReadThatTheWatchHasOvertakenMakesTheStateCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := behindIt(t)
		x.heard = 7
		time.Sleep(time.Second)
		read := time.Now()
		x.readAt, x.least = read, x.heard // as read does
		x.deliver(t, value("a", 9, addrs("10.0.0.1:1")))
		if err := x.probed(answer{listing: listing{revision: 8}}); err != nil {
			t.Fatal(err)
		}
		if st := x.Status(); !st.Current.Equal(read) {
			t.Errorf("current since %v; want since the read", time.Since(st.Current))
		}
	})
}
