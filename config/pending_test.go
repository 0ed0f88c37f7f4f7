package config

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// TestPendingTellsHowFarTheSlowestQueueIsBehind: what handlers are being told is not pending any more,
// and a quick queue does not hide a slow one.
func TestPendingTellsHowFarTheSlowestQueueIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, []string{"one"}, newView(), busyView(), newView())
		wants := func(want Pending) {
			t.Helper()
			if got := r.broadcaster.Pending(); !reflect.DeepEqual(got, want) {
				t.Errorf("pending: %+v, want %+v", got, want)
			}
		}
		wants(Pending{Merged: []int64{0}})
		r.send("one", set().service("web", 80))
		wants(Pending{Merged: []int64{0}})
		pass(time.Second)
		oldest := time.Now()
		r.send("one", changes().service("web", 81).endpoints("web", 1))
		pass(time.Second)
		r.send("one", changes().service("web", 82).service("db", 1))
		wants(Pending{Services: 2, Endpoints: 1, Oldest: oldest, Merged: []int64{0}})
		r.send("one", changes().noService("db"))
		wants(Pending{Services: 1, Endpoints: 1, Oldest: oldest, Merged: []int64{0}})
		pass(time.Minute)
		wants(Pending{Merged: []int64{0}})
		unchanged := changes()
		unchanged.Revision = 9
		r.send("one", unchanged) // it moves the revision, and nothing else
		wants(Pending{Merged: []int64{9}})
		pass(time.Hour) // until no handler is busy any more
	})
}
