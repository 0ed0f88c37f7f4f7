package apisource

import (
	"testing"
	"time"
)

// Lists, then watches: what is written before and after takes effect, in each dialect.
func TestWhatIsWrittenToTheServerTakesEffect(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.PutEndpoints("default", "web", "10.0.0.1:80", "10.0.0.2:80")
		f.begin()
		f.soon()
		f.want("endpoints web=10.0.0.1:80 10.0.0.2:80; service web=8000")
		f.server.PutService("default", "dns", 5353)
		f.server.PutService("default", "web", 8001)
		f.server.PutEndpoints("default", "web", "10.0.0.3:80")
		f.soon()
		f.want("endpoints web=10.0.0.3:80; service dns=5353; service web=8001")
		f.server.DeleteService("default", "dns")
		f.server.DeleteEndpoints("default", "web")
		f.soon()
		f.want("service web=8001")
		st := f.source.Status()
		if !st.Ready || !st.Connected || st.Services != 1 || st.Sessions != 1 || st.Divergences != 0 || st.Revision != f.server.Version() || f.sets != 1 {
			f.t.Errorf("status %+v after %d SETs", st, f.sets)
		}
	})
}

func TestAnEmptyServerIsAState(t *testing.T) {
	follow(t, func(f *follower) {
		f.begin()
		f.soon()
		if f.want(""); f.sets != 1 {
			f.t.Errorf("%d SETs; want one, which is empty", f.sets)
		}
	})
}

// Equal objects have equal bytes wherever they come from: so a list that shows what the watch has told changes nothing.
func TestAListAfterTheWatchFindsNothingNew(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		f.server.PutService("default", "web", 8001)
		f.server.PutService("team", "dns", 5353)
		f.server.PutEndpoints("default", "web", "10.0.0.3:80")
		f.soon()
		before := len(f.updates)
		f.source.Resync()
		f.soon()
		for _, u := range f.updates[before:] {
			if len(u.Services)+len(u.Endpoints) > 0 {
				f.t.Errorf("the list changed %v, %v", u.Services, u.Endpoints)
			}
		}
		if st := f.source.Status(); st.Resyncs != 2 || st.Divergences != 0 {
			f.t.Errorf("%d resyncs, %d divergences; want 2 and none", st.Resyncs, st.Divergences)
		}
	})
}

// v0.4.4's watch does not tell etcd's update and expire, nor a recursive deletion.
func TestWhatTheWatchDoesNotTellTheNextListDoes(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.PutService("default", "old", 8001)
		f.begin()
		f.soon()
		f.server.Untold(func() {
			f.server.PutService("default", "web", 8002)
			f.server.DeleteService("default", "old")
		})
		f.server.PutService("default", "later", 8003) // the watch has come further than what it has not told
		f.soon()
		f.want("service later=8003; service old=8001; service web=8000")
		f.after(SyncFactor * 36 * time.Second)
		f.want("service later=8003; service web=8002")
		if st := f.source.Status(); st.Divergences == 0 {
			f.t.Error("no divergence was counted")
		}
	})
}

func TestAServerThatIsAwayChangesNothing(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		f.network.Refuse()
		f.after(time.Minute)
		f.want("service web=8000")
		st := f.source.Status()
		if st.Connected || st.Cause != "broken" || st.Attempts < 5 {
			f.t.Errorf("status %+v; want one that says that the server is away", st)
		}
		f.server.PutService("default", "web", 8001)
		f.network.Open()
		f.after(maxBackoff)
		f.want("service web=8001")
		if st := f.source.Status(); !st.Connected || st.Sessions != 2 {
			f.t.Errorf("status %+v; want a second session", st)
		}
	})
}

func TestAWatchThatIsCutInTheMiddleOfAnEventIsBegunAgain(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		f.server.Cut()
		f.server.PutService("default", "web", 8001)
		f.after(maxBackoff)
		f.want("service web=8001")
	})
}

// The watch begins at a version that is no longer known: 410 inside a stream with status 200, or etcd's 401 in v0.4.4.
func TestHistoryThatIsGoneIsReadAgain(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.Break(func(e exchange) bool {
			if e.Watch && e.Resource == "services" && f.server.Version() == 4 { // between the list and the watch
				f.server.PutService("default", "web", 8001)
				f.server.Compact()
			}
			return false
		})
		f.begin()
		f.after(maxBackoff)
		f.want("service web=8001")
		if n := f.count("list"); n != 2 {
			f.t.Errorf("%d lists; want two", n)
		}
	})
}

// A v1 ends each watch after some minutes, as it was asked to. That is no trouble, and costs no list.
func TestAWatchThatEndsAsItWasAskedToGoesOn(t *testing.T) {
	followOne(t, dialects["1.16.0"], func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin(func(c *Config) { c.SyncPeriod = time.Hour })
		f.soon()
		lists := f.count("list")
		for i := range 6 {
			f.after(5 * time.Minute)
			f.server.PutService("default", "web", 8001+i)
		}
		f.soon()
		f.want("service web=8006")
		if st := f.source.Status(); st.Sessions != 1 || f.count("list") != lists || f.count("watch") < 3 {
			f.t.Errorf("%d sessions, %d lists, %d watches", st.Sessions, f.count("list")-lists, f.count("watch"))
		}
	})
}

// A server of 0.5.4 answers the question for its versions with status 406 if only JSON will do.
func TestTheVersionOfEachServerIsFoundOut(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		f.want("service web=8000")
		if st := f.source.Status(); !st.Connected {
			f.t.Errorf("cause %q: %s", st.Cause, st.Reason)
		}
	})
}
