package config

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// TestEachStepAfterTheFirstStateIsObserved: with its source, and whether a full list has corrected what the watch had said.
func TestEachStepAfterTheFirstStateIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, []string{"etcd", "files"}, newView())
		var got []string
		r.broadcaster.Observe(func(s Step) {
			for c := range s.Changes() {
				got = append(got, fmt.Sprintf("%s corrected=%t %s before=%t after=%t of %d", s.Source, s.Corrected, c.Name, c.ServiceBefore != nil, c.ServiceAfter != nil, s.Len()))
			}
		})
		r.send("etcd", set().service("web", 80))
		r.send("files", set().service("web", 81))
		r.send("etcd", changes().service("db", 5432))
		r.send("files", changes().service("web", 82)) // hidden by etcd's
		r.send("etcd", set().service("web", 80))
		want := []string{
			"etcd corrected=false db before=false after=true of 1",
			"etcd corrected=true db before=true after=false of 1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("observed %q; want %q", got, want)
		}
	})
}
