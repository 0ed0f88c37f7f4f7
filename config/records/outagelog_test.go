package records

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

const (
	broken = iota
	silent
)

func TestTenMinutesOfAnOutageTakeADozenLines(t *testing.T) {
	log := recordstest.LogSince(t)
	synctest.Test(t, func(t *testing.T) {
		l := NewOutageLog(0, "broken", "silent")
		l.Reads()
		for range 600 {
			time.Sleep(time.Second)
			l.Failed(broken, "it is away", "no route")
		}
		away, loud := l.Reads()
		if away != 599*time.Second || !loud {
			t.Errorf("away for %v, made known: %v; want 599s and true", away, loud)
		}
		l.Recovered("it is back", loud)
	})
	lines := recordstest.LogLines(log())
	if n := len(lines); n < 5 || n > 14 {
		t.Fatalf("%d lines:\n%s", n, strings.Join(lines, "\n"))
	}
	for i, want := range map[int]string{
		0:              "W it is away: no route; nothing is known yet, trying again",
		1:              "W it is away: no route; without it since ",
		len(lines) - 1: "I it is back",
	} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q; want %q", i, lines[i], want)
		}
	}
}

// Each outage of a place that comes and goes is short, and a day of them does not fill a log.
func TestAPlaceThatComesAndGoesAllDayTakesTensOfLinesAnHour(t *testing.T) {
	log := recordstest.LogSince(t)
	quiet := 0
	synctest.Test(t, func(t *testing.T) {
		l := NewOutageLog(0, "broken", "silent")
		for i := range 3600 {
			time.Sleep(time.Second)
			l.Failed(i%2, "it is away", "no route")
			away, loud := l.Reads()
			if !loud {
				quiet++
			}
			l.Recovered(fmt.Sprint("it is back after ", away), loud)
		}
	})
	lines := recordstest.LogLines(log())
	if n := len(lines); n < 20 || n > 200 {
		t.Errorf("%d lines; the last are:\n%s", n, strings.Join(lines[max(0, n-5):], "\n"))
	}
	if told := 2 * (3600 - quiet); told != len(lines) {
		t.Errorf("%d lines; want a beginning and an end of each outage that was made known: %d", len(lines), told)
	}
}

func TestALineOfAnotherCauseIsNotHeldBack(t *testing.T) {
	log := recordstest.LogSince(t)
	synctest.Test(t, func(t *testing.T) {
		l := NewOutageLog(0, "broken", "silent")
		l.Failed(broken, "it is away", "no route")
		l.Failed(broken, "it is away", "no route")
		l.Failed(silent, "it says nothing", "no answer")
	})
	lines := recordstest.LogLines(log())
	if len(lines) != 2 || !strings.HasPrefix(lines[1], "W it says nothing: no answer; without it since ") {
		t.Errorf("the log reads:\n%s", strings.Join(lines, "\n"))
	}
}

func TestTheStatusSaysSinceWhenAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewOutageLog(0, "broken", "silent")
		began := time.Now()
		l.Failed(silent, "it says nothing", "no answer")
		time.Sleep(time.Minute)
		l.Failed(broken, "it is away", "no route")
		st := l.Status()
		if st.Connected || !st.Since.Equal(began) || st.Cause != "broken" || st.Reason != "no route" || st.Attempts != 2 {
			t.Errorf("%+v; want the last cause, and the time of the first", st)
		}
		if away, _ := l.Reads(); away != time.Minute {
			t.Errorf("away for %v; want a minute", away)
		}
		if away, loud := l.Reads(); away != 0 || loud {
			t.Errorf("read twice: away for %v, %v; want neither", away, loud)
		}
		st = l.Status()
		if !st.Connected || !st.Since.Equal(time.Now()) || st.Cause != "" || st.Reason != "" || st.Attempts != 0 || !st.Heard.Equal(time.Now()) {
			t.Errorf("%+v; want a place that can be read since now", st)
		}
		l.Stopped()
		if st := l.Status(); st.Connected || st.Reason != "stopped" {
			t.Errorf("%+v; want one that was stopped", st)
		}
	})
}

func TestEndsAreCountedByTheirCause(t *testing.T) {
	l := NewOutageLog(0, "broken", "silent")
	l.End(silent)
	before := l.Status()
	l.End(silent)
	if got := fmt.Sprint(before.Ends, l.Status().Ends); got != "[{broken 0} {silent 1}] [{broken 0} {silent 2}]" {
		t.Errorf("%s; want a status that does not change any more, and a new one", got)
	}
}

func TestTheStatusFollowsWhatWasSent(t *testing.T) {
	state := New(decode.Decoder{})
	put := func(name string, revision int64) {
		state.Put(Version{Key: []byte(recordstest.Spec(name)), Value: []byte(recordstest.Port(80)), Created: revision, Revision: revision})
	}
	l := NewOutageLog(0, "broken")
	out := make(chan registry.Update, 1)
	put("a", 7)
	l.Send(t.Context(), out, state, true, 7, time.Now())
	if u := <-out; !u.Set || u.Revision != 7 || len(u.Services) != 1 {
		t.Errorf("%+v; want a SET of one service", u)
	}
	if st := l.Status(); !st.Ready || st.Revision != 7 || st.Services != 1 {
		t.Errorf("%+v; want one service at revision 7", st)
	}
	over, end := context.WithCancel(t.Context())
	end()
	put("b", 8)
	l.Send(over, nil, state, false, 8, time.Now())
	if st := l.Status(); st.Revision != 7 || st.Services != 1 {
		t.Errorf("%+v; want what was sent, for the rest was not taken", st)
	}
}

func TestAPlaceOfWhichNothingCanBeUsedIsAnErrorInTheLog(t *testing.T) {
	log := recordstest.LogSince(t)
	l := NewOutageLog(0, "broken")
	l.Edit(func(st *config.Status) { st.Services = 1 })
	l.ReportRead("place read", "files")
	l.Edit(func(st *config.Status) {
		st.Rejected, st.Rejections = 2, []config.Rejection{{Key: "bad", Reason: "no JSON"}}
	})
	l.ReportRead("place read", "files")
	if l.IsUseless() {
		t.Error("a place with a service is called useless")
	}
	l.Edit(func(st *config.Status) { st.Services = 0 })
	l.ReportRead("place read", "files")
	if !l.IsUseless() {
		t.Error("a place with nothing but rejected files is not called useless")
	}
	l.Edit(func(st *config.Status) { st.Rejections = nil }) // those that were listed are mended, and another list has not come yet
	l.ReportRead("place read", "files")
	want := []string{
		"I place read: 1 services, 0 endpoints",
		"I place read: 1 services, 0 endpoints; 2 files cannot be used",
		`E place read: none of the 2 files can be used, for example "bad": no JSON; not ready until one can`,
		"E place read: none of the 2 files can be used; not ready until one can",
	}
	if got := recordstest.LogLines(log()); !slices.Equal(got, want) {
		t.Errorf("the log reads\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A place that answers, and ends each session at once, cannot be read: what it says between is no end of the outage.
func TestOfSessionsThatEndAtOnceOnlyOneThatLastsEndsTheOutage(t *testing.T) {
	log := recordstest.LogSince(t)
	synctest.Test(t, func(t *testing.T) {
		l := NewOutageLog(5*time.Second, "broken")
		session := func(stands time.Duration) (away time.Duration, lasted bool) {
			away, loud := l.Reads()
			if away > 0 {
				l.Recovered(fmt.Sprint("it is back after ", away), loud)
			}
			time.Sleep(stands)
			lasted = l.End(broken)
			l.Failed(broken, "it is away", "it hung up")
			time.Sleep(time.Second)
			return away, lasted
		}
		for i := range 10 {
			away, lasted := session(0)
			if want := i == 1; (away > 0) != want || lasted { // the first is followed by one that may be the end of it
				t.Errorf("session %d: away for %v before it; it lasted: %v", i, away, lasted)
			}
		}
		if st := l.Status(); st.Connected || st.Attempts != 9 || time.Since(st.Since) != 9*time.Second {
			t.Errorf("%+v; want one outage of nine seconds", st)
		}
		if away, _ := l.Reads(); away != 0 || l.Status().Connected {
			t.Error("a session that has just begun ends the outage")
		}
		time.Sleep(5 * time.Second)
		if away, _ := l.Reads(); away != 14*time.Second || !l.Status().Connected {
			t.Errorf("away for %v, connected: %v; want a session that has lasted to end the outage", away, l.Status().Connected)
		}
		if !l.End(broken) {
			t.Error("the session had not lasted")
		}
	})
	if n := len(recordstest.LogLines(log())); n > 6 {
		t.Errorf("%d lines:\n%s", n, log())
	}
}
