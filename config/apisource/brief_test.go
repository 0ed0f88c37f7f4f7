package apisource

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"kubeproxy/config/records/recordstest"
)

// A load balancer that lets no stream stand ends each watch with a complete and empty answer; a server that forgets at once what it had
// to tell ends it with an event. Either way the node asks ever more seldom, and says that it has no watch.
func TestAServerThatEndsEachWatchAtOnceIsInAnOutage(t *testing.T) {
	for what, end := range map[string]func(exchange){
		"brief": func(e exchange) { e.W.WriteHeader(http.StatusOK) },
		"expired": func(e exchange) {
			fmt.Fprint(e.W, `{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}`)
		},
	} {
		t.Run(what, func(t *testing.T) {
			log := recordstest.LogSince(t)
			follow(t, func(f *follower) {
				f.server.PutService("default", "web", 8000)
				f.begin()
				f.soon()
				f.server.Break(func(e exchange) bool {
					if e.Watch {
						end(e)
					}
					return e.Watch
				})
				f.server.EndWatches(`{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}`)
				f.after(30 * time.Second)
				watches, connected := watchesOf(f), 0
				for range 600 {
					f.after(100 * time.Millisecond)
					if f.source.Status().Connected {
						connected++
					}
				}
				if n := watchesOf(f) - watches; n < 12 || n > 50 { // one or two after each pause of 2.5 to 5 s
					f.t.Errorf("%d watches in a minute; want 12 to 48", n)
				}
				if st := f.source.Status(); connected > 0 || st.Cause != what || st.Attempts < 12 {
					f.t.Errorf("connected %d times of 600, cause %q after %d attempts; want one outage that goes on", connected, st.Cause, st.Attempts)
				}
				f.server.PutService("default", "web", 8001) // which a list tells
				f.after(2 * maxBackoff)
				f.want("service web=8001")
				f.server.Break(nil)
				f.after(3 * maxBackoff)
				if st := f.source.Status(); !st.Connected {
					f.t.Errorf("not connected: %s; want a source that reads once its watches stand", st.Reason)
				}
			})
			if n := strings.Count(log(), "\n"); n < 4 || n > 40*len(dialects) {
				t.Errorf("%d lines in the log; want the outages, and not each attempt", n)
			}
		})
	}
}

// watchesOf counts the watches that were asked for.
func watchesOf(f *follower) (n int) {
	for _, path := range f.server.Requests() {
		if strings.Contains(path, "watch") {
			n++
		}
	}
	return n
}
