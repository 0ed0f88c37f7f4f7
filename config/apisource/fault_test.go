package apisource

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/config/remote"
	"kubeproxy/internal/apiserver"
)

// A list fails only for the server's sake: its watch goes on, what is known stays in force, and a broken watch is begun again
// where it was, though no list works.
func TestWhileOneRecordMakesEveryListFailTheWatchGoesOn(t *testing.T) {
	follow(t, func(f *follower) {
		if f.server.Dialect >= apiserver.V1 {
			return // such a server decodes what it has written
		}
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		f.server.Undecodable()
		f.after(time.Minute)
		f.server.PutService("default", "web", 8001)
		f.soon()
		f.want("service web=8001")
		if st := f.source.Status(); st.Sessions != 1 || !st.Connected {
			f.t.Errorf("status %+v; want one session that stands", st)
		}
		f.network.Break()
		f.after(2 * maxBackoff)
		f.server.PutService("default", "web", 8002)
		f.soon()
		f.want("service web=8002")
		f.server.Mend()
		f.server.Untold(func() { f.server.PutService("default", "dns", 5353) })
		f.after(time.Minute)
		f.want("service dns=5353; service web=8002")
	})
}

// What v0.4.4 says when its etcd is away: the end of each watch, and status 500.
func TestWhileTheServerHasNoRegistryWhatIsKnownStaysInForce(t *testing.T) {
	const away = "501: All the given peers are not reachable (Tried to connect to each peer twice and failed) [0]"
	followOne(t, dialects["0.4.4"], func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		f.server.Break(func(e exchange) bool {
			if e.Watch {
				fmt.Fprintf(e.W, `{"type":"ERROR","object":{"kind":"Status","message":%q}}`, away)
			} else {
				e.Refuse(http.StatusInternalServerError, away, "")
			}
			return true
		})
		f.server.EndWatches(fmt.Sprintf(`{"type":"ERROR","object":{"kind":"Status","message":%q}}`, away))
		f.after(time.Minute)
		f.want("service web=8000")
		requests := len(f.server.Requests())
		f.after(time.Minute)
		if n := len(f.server.Requests()) - requests; n > 200 {
			f.t.Errorf("%d requests in a minute", n)
		}
		if st := f.source.Status(); st.Connected || st.Cause != "error" || !strings.Contains(st.Reason, "501: All the given peers") {
			f.t.Errorf("status %+v; want what the server said", st)
		}
		f.server.Break(nil)
		f.server.PutService("default", "web", 8001)
		f.after(2 * maxBackoff)
		f.want("service web=8001")
	})
}

// The registry behind a server was wiped: its watch is silent, and a list has a smaller version. Three such lists are believed.
func TestARegistryThatWasWipedIsTheTruth(t *testing.T) {
	follow(t, func(f *follower) {
		for i := range 5 {
			f.server.PutService("default", fmt.Sprint("old-", i), 8000+i)
		}
		f.begin()
		f.soon()
		f.server.Wipe()
		f.server.PutService("default", "new", 9000)
		f.after(SyncFactor * 36 * time.Second)
		f.want("service new=9000")
		f.server.PutService("default", "newer", 9001)
		f.soon()
		f.want("service new=9000; service newer=9001")
		if st := f.source.Status(); st.Setbacks == 0 || st.Revision != f.server.Version() {
			f.t.Errorf("status %+v; want a setback, and the present version", st)
		}
		if n := f.server.Watches(); n != 2 {
			f.t.Errorf("%d watches; want one of each resource: those of the old history are of no use", n)
		}
	})
}

// What the registry has lost is no change that the watch should have told, though the objects are the same ones as before.
func TestARegistryThatWasRestoredFromABackupIsNoDivergence(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.PutService("default", "same", 8001)
		backup := f.server.Version()
		f.server.PutService("default", "web", 8002)
		f.begin()
		f.soon()
		f.want("service same=8001; service web=8002")
		f.server.Restore(backup)
		f.after(SyncFactor * 36 * time.Second)
		f.want("service same=8001; service web=8000")
		if st := f.source.Status(); st.Setbacks == 0 || st.Divergences != 0 {
			f.t.Errorf("%d setbacks, %d divergences; want some, and none", st.Setbacks, st.Divergences)
		}
	})
}

// One of several servers lags: a list of it, asked for by name of no version, must not bring back what was deleted.
func TestAServerThatLagsBringsNothingBack(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.PutService("default", "old", 8001)
		lagging := f.server.Version()
		f.begin()
		f.soon()
		f.server.DeleteService("default", "old")
		f.soon()
		lists := 0
		f.server.Break(func(e exchange) bool {
			if e.Resource != "services" || e.Watch || lists == 2 {
				return false
			}
			lists++
			f.server.ListAt(e, lagging)
			return true
		})
		f.source.Resync()
		f.soon()
		f.network.Break() // and so for the lists of a new session
		f.after(2 * maxBackoff)
		f.want("service web=8000")
		for _, u := range f.updates {
			for _, c := range u.Services[min(2, len(u.Services)):] {
				f.t.Errorf("a change of %v", c.Name)
			}
		}
		if st := f.source.Status(); st.Setbacks != 0 || lists != 2 {
			f.t.Errorf("%d setbacks after %d lists", st.Setbacks, lists)
		}
	})
}

// A silent server is found out by the question beside the watch, and by the bookmarks that do not come.
func TestASilentServerIsNoticed(t *testing.T) {
	followOne(t, dialects["1.16.0"], func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.after(2 * time.Minute) // there were bookmarks
		if st := f.source.Status(); !st.Connected || time.Since(st.Current) > 100*time.Second {
			f.t.Errorf("status %+v; want a state that is current", st)
		}
		f.server.Break(func(e exchange) bool { e.Hang(); return true })
		f.server.Mute()
		f.after(2 * time.Minute)
		if st := f.source.Status(); st.Connected || st.Cause != "silent" {
			f.t.Errorf("status %+v; want silence", st)
		}
		f.after(2 * time.Minute)
		if st := f.source.Status(); st.Ends[Stale].Count != 1 {
			f.t.Errorf("sessions ended: %+v; want one that was stale", st.Ends)
		}
		f.want("service web=8000")
		f.server.Break(nil)
		f.server.PutService("default", "web", 8001)
		f.after(DefaultRequestTimeout + 2*maxBackoff)
		f.want("service web=8001")
	})
}

// Permission is missing for one resource: the other alone is not enough.
func TestAMissingPermissionIsNamedWithWhatToGrant(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		followOne(t, dialects["1.16.0"], func(f *follower) {
			f.server.PutService("default", "web", 8000)
			f.server.Forbid(verb, "endpoints")
			f.begin()
			f.after(time.Minute)
			requests := len(f.server.Requests())
			f.after(time.Minute)
			if n := len(f.server.Requests()) - requests; n > 125 { // five for an attempt, of which at most 25 begin or end within a minute
				f.t.Errorf("%s: %d requests in a minute; want pauses", verb, n)
			}
			st := f.source.Status()
			if st.Cause != "forbidden" || !strings.Contains(st.Reason, verb+" endpoints: HTTP 403 Forbidden") ||
				!strings.Contains(st.Reason, "(grant list and watch of services") {
				f.t.Errorf("%s: status %+v", verb, st)
			}
			f.server.Grant(verb, "endpoints")
			f.after(2 * maxBackoff)
			f.want("service web=8000")
		})
	}
}

// The file of the token is read for each request, so that its successor is used, and until then the log says what is wrong.
func TestATokenThatWasReplacedIsUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	followOne(t, dialects["1.16.0"], func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.Token("first")
		f.begin(func(c *Config) { c.Token = remote.Text{Path: file} })
		f.soon()
		f.want("service web=8000")
		f.server.Token("second-is-secret")
		f.server.EndWatches("")
		f.after(time.Minute)
		st := f.source.Status()
		if st.Cause != "auth" || !strings.Contains(st.Reason, "HTTP 401 Unauthorized") || !strings.Contains(st.Reason, "has expired") {
			f.t.Errorf("status %+v", st)
		}
		write("second-is-secret\n")
		f.server.PutService("default", "web", 8001)
		f.after(2 * maxBackoff)
		f.want("service web=8001")
		if st := fmt.Sprintf("%+v", f.source.Status()); strings.Contains(st, "second-is-secret") {
			f.t.Errorf("a secret in %s", st)
		}
	})
}

// A bad record hurts only itself, and its last good version stays until it is deleted.
func TestABadRecordOfAServerHurtsOnlyItself(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		f.server.PutService("default", "web", 99999)
		f.server.PutService("default", "dns", 5353)
		f.soon()
		f.want("service dns=5353; service web=8000")
		f.source.Resync()
		f.soon()
		f.want("service dns=5353; service web=8000")
		st := f.source.Status()
		if st.Rejected != 1 || len(st.Rejections) != 1 || st.Rejections[0].Key != "/registry/services/specs/default/web" {
			f.t.Errorf("rejected: %d, %+v", st.Rejected, st.Rejections)
		}
		f.server.DeleteService("default", "web")
		f.server.PutService("default", "web", 99998)
		f.soon()
		f.want("service dns=5353")
	})
}

// A list that takes long is older than what the watch has told meanwhile: of each object the newer counts.
func TestAListDoesNotUndoWhatTheWatchHasToldMeanwhile(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.PutService("default", "old", 8001)
		f.begin()
		f.soon()
		f.server.Break(func(e exchange) bool {
			if e.Resource != "services" || e.Watch {
				return false
			}
			at := f.server.Version()
			time.Sleep(5 * time.Second)
			f.server.ListAt(e, at)
			return true
		})
		f.source.Resync()
		f.soon()
		f.server.PutService("default", "web", 8002)
		f.server.PutService("default", "new", 8003)
		f.server.DeleteService("default", "old")
		f.after(10 * time.Second)
		f.want("service new=8003; service web=8002")
		for _, u := range f.updates[5:] { // after the SET, another list, and three events
			if len(u.Services) > 0 {
				f.t.Errorf("the list changed %v", u.Services)
			}
		}
		if st := f.source.Status(); st.Resyncs != 2 || st.Divergences != 0 {
			f.t.Errorf("%d resyncs, %d divergences; want 2 and none", st.Resyncs, st.Divergences)
		}
	})
}

// No version of an object is lost or comes back when a list and the watch overlap.
func TestEventsThatAListHasAlreadyAreKnown(t *testing.T) {
	followOne(t, dialects["1.16.0"], func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		// The watch tells once more what the list had, and an older value.
		f.server.Send("services", `{"type":"MODIFIED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"default","resourceVersion":"3"},"spec":{"ports":[{"port":7999}]}}}`)
		f.soon()
		f.want("service web=8000")
	})
}

// The list of a v1 comes in pages of one snapshot. One that is lost half-way is begun again, in larger pages.
func TestAListThatLosesItsSnapshotBetweenTwoPagesIsBegunAgain(t *testing.T) {
	followOne(t, dialects["1.16.0"], func(f *follower) {
		var want []string
		for i := range 9 {
			f.server.PutService("default", fmt.Sprint("s-", i), 8000+i)
			want = append(want, fmt.Sprintf("service s-%d=%d", i, 8000+i))
		}
		pages := 0
		f.server.Break(func(e exchange) bool {
			if e.Resource == "services" && !e.Watch && e.R.URL.Query().Get("continue") != "" {
				if pages++; pages == 2 {
					for f.server.Watches() == 0 { // of the endpoints: one that began later would find its history gone, and end the session
						time.Sleep(time.Millisecond)
					}
					f.server.PutService("default", "s-0", 8000)
					f.server.Compact()
				}
			}
			return false
		})
		f.begin(func(c *Config) { c.PageSize = 2 })
		f.soon()
		f.want(strings.Join(want, "; "))
		if !slices.ContainsFunc(f.server.Requests(), func(path string) bool { return strings.Contains(path, "/services?limit=8") }) {
			f.t.Errorf("no larger page was asked for: %v", f.server.Requests())
		}
	})
}

// A redirect would show the token to another host.
func TestARedirectIsNotFollowed(t *testing.T) {
	followOne(t, dialects["1.16.0"], func(f *follower) {
		f.server.Break(func(e exchange) bool {
			http.Redirect(e.W, e.R, "http://elsewhere.test/", http.StatusFound)
			return true
		})
		f.begin()
		f.after(time.Minute)
		if st := f.source.Status(); !strings.Contains(st.Reason, "redirects are not followed") {
			f.t.Errorf("status %+v", st)
		}
	})
}

// Services without their endpoints are not sent, and neither are endpoints alone.
func TestNothingIsSentBeforeBothListsAreIn(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.PutEndpoints("default", "web", "10.0.0.1:80")
		late := f.server.EndpointsResource()
		f.server.Break(func(e exchange) bool {
			if e.Resource == late && !e.Watch {
				time.Sleep(5 * time.Second)
			}
			return false
		})
		f.begin()
		f.after(4 * time.Second)
		if len(f.updates) > 0 {
			f.t.Errorf("%d updates before the endpoints are listed", len(f.updates))
		}
		f.server.PutService("default", "web", 8001)
		f.after(4 * time.Second)
		f.want("endpoints web=10.0.0.1:80; service web=8001")
		if f.sets != 1 || !f.updates[0].Set {
			f.t.Errorf("%d SETs; the first update is %+v", f.sets, f.updates[0])
		}
	})
}

// The endpoints may take longer than the services take to be listed again. Nothing is sent meanwhile, and the source is not ready.
func TestServicesThatAreListedAgainAreNotSentWithoutEndpoints(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.PutEndpoints("default", "web", "10.0.0.1:80")
		late := f.server.EndpointsResource()
		f.server.Break(func(e exchange) bool {
			if e.Resource == late && !e.Watch {
				time.Sleep(9 * time.Second)
			}
			return false
		})
		f.begin(func(c *Config) { c.SyncPeriod = 200 * time.Millisecond })
		f.after(8 * time.Second)
		if n := f.count("list"); n < 2 {
			f.t.Errorf("%d lists of services; want several before the endpoints are listed", n)
		}
		if st := f.source.Status(); len(f.updates) > 0 || st.Ready {
			f.t.Errorf("%d updates before the endpoints are listed, status %+v; want none, and a source that is not ready", len(f.updates), st)
		}
		f.server.Break(nil)
		f.after(4 * time.Second)
		f.want("endpoints web=10.0.0.1:80; service web=8000")
		if st := f.source.Status(); f.sets != 1 || !f.updates[0].Set || !st.Ready {
			f.t.Errorf("%d SETs; the first update is %+v, status %+v", f.sets, f.updates[0], st)
		}
	})
}

// A dial that is under way when the source is told to stop ends with it.
func TestNothingIsLeftOfASourceThatWasDialling(t *testing.T) {
	for _, server := range []string{"http://api.test", "https://api.test"} {
		followOne(t, dialects["1.36.3"], func(f *follower) {
			var dials, ended atomic.Int64
			f.begin(func(c *Config) {
				c.Server = server
				c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
					dials.Add(1)
					<-ctx.Done()
					ended.Add(1)
					return nil, ctx.Err()
				}
			})
			f.soon()
			began := time.Now()
			f.stop()
			if d := time.Since(began); d > 0 {
				f.t.Errorf("it took %v to stop", d)
			}
			if dials.Load() == 0 || ended.Load() != dials.Load() {
				f.t.Errorf("%d dials, of which %d have ended", dials.Load(), ended.Load())
			}
		})
	}
}

// A watch may be silent however much it has told before, and while it is, what is known is current.
func TestAWatchThatHasToldMuchMayBeSilent(t *testing.T) {
	follow(t, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		for i := range 200 { // more than one answer may have in a request timeout
			f.server.PutService("default", "web", 8000+i)
		}
		f.after(19 * time.Second) // before the next list of a v1beta1
		if st := f.source.Status(); st.Sessions != 1 || !st.Connected {
			f.t.Errorf("status %+v; want one session that stands", st)
		}
		f.want("service web=8199")
	})
}

func TestTheStateOfASilentV1IsCurrentWithTheFirstQuestion(t *testing.T) {
	followOne(t, apiserver.V1, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.after(probePeriod + time.Second)
		if st := f.source.Status(); time.Since(st.Current) > 2*time.Second {
			f.t.Errorf("current %v ago; want a moment", time.Since(st.Current))
		}
	})
}

// Events do not put off the question how far the server has come: on a busy cluster there is always one.
func TestTheStateOfABusyV1IsCurrent(t *testing.T) {
	followOne(t, apiserver.V1, func(f *follower) {
		f.begin(func(c *Config) { c.SyncPeriod = time.Hour })
		f.soon()
		for i := range 15 {
			f.server.PutService("default", "web", 8000+i)
			f.after(20 * time.Second)
		}
		if st := f.source.Status(); time.Since(st.Current) > 100*time.Second {
			f.t.Errorf("current %v ago; want less than 100s", time.Since(st.Current))
		}
	})
}

// A bookmark may say less than the server has answered a moment before. It confirms an earlier answer then.
func TestBookmarksThatLagBehindMakeTheStateCurrent(t *testing.T) {
	followOne(t, apiserver.V1, func(f *follower) {
		f.server.Break(func(e exchange) bool {
			if !e.Watch || e.Resource != "services" {
				return false
			}
			out := http.NewResponseController(e.W)
			pause := func(d time.Duration) {
				select {
				case <-time.After(d):
				case <-e.R.Context().Done():
				}
			}
			_ = out.Flush() // who does not listen any more ends the request
			pause(2 * time.Second)
			for e.R.Context().Err() == nil {
				pause(55 * time.Second)
				at := f.server.Version()
				pause(5 * time.Second) // in which the question is asked again
				fmt.Fprintf(e.W, `{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`+"\n", at)
				_ = out.Flush()
			}
			return true
		})
		f.begin(func(c *Config) { c.SyncPeriod = time.Hour })
		f.soon()
		for i := range 150 {
			f.server.PutEndpoints("default", "web", fmt.Sprintf("10.0.0.1:%d", 80+i))
			f.after(2 * time.Second)
		}
		if st := f.source.Status(); time.Since(st.Current) > 100*time.Second {
			f.t.Errorf("current %v ago; want less than 100s", time.Since(st.Current))
		}
	})
}

// An answer that the watch has overtaken on its way is not one of a server that has lost what it had.
func TestAnEventDuringTheQuestionCostsNoList(t *testing.T) {
	followOne(t, apiserver.V1, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.Break(func(e exchange) bool {
			if e.Watch || e.Resource != "services" || e.R.URL.Query().Get("limit") != "1" {
				return false
			}
			at := f.server.Version()
			f.server.PutService("default", "web", 8001)
			time.Sleep(time.Second)
			f.server.ListAt(e, at)
			return true
		})
		f.begin(func(c *Config) { c.SyncPeriod = time.Hour })
		f.soon()
		lists := f.count("list")
		f.after(probePeriod + 10*time.Second)
		f.want("service web=8001")
		if n := f.count("list"); n != lists {
			f.t.Errorf("%d lists; want none", n-lists)
		}
	})
}

// What is longer than a record may be is rejected by its name, and never held.
func TestAnEventThatIsTooLongHurtsOnlyItsObject(t *testing.T) {
	followOne(t, apiserver.V1, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin()
		f.soon()
		f.server.Send("services", fmt.Sprintf(`{"type":"MODIFIED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"default","resourceVersion":"1000"},"spec":{"ports":[{"port":%d}],"x":"%s"}}}`,
			8001, strings.Repeat("x", maxEvent)))
		f.soon()
		f.want("service web=8000")
		st := f.source.Status()
		if st.Sessions != 1 || len(st.Rejections) != 1 || st.Rejections[0].Key != "/registry/services/specs/default/web" || !strings.Contains(st.Rejections[0].Reason, "is longer than the limit") {
			f.t.Errorf("status %+v; want one session, and the object rejected", st)
		}
	})
}

func TestAVersionThatIsGivenIsNotAskedFor(t *testing.T) {
	followOne(t, apiserver.V054, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.begin(func(c *Config) { c.APIVersion = "v1beta1" })
		f.soon()
		f.want("service web=8000")
		if slices.Contains(f.server.Requests(), "/api") {
			f.t.Errorf("asked for %v", f.server.Requests())
		}
	})
}
