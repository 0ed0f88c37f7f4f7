package etcdv2source

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/config/records/recordstest"
)

// A list costs an etcd 2 a quorum, and everything that it holds. However its watches end, a node lists ever more seldom, and says that it
// has no watch.
func TestAnEtcd2ThatEndsEachWatchAtOnceIsInAnOutage(t *testing.T) {
	for what, end := range map[string]func(http.ResponseWriter){
		"stale": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"errorCode":401,"message":"The event in requested index is outdated and cleared","cause":"the requested history has been cleared","index":7}`)
		},
		"error":  func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"broken": func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
	} {
		t.Run(what, func(t *testing.T) {
			var lists atomic.Int64
			const enough = 7
			began := time.Now()
			etcd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Etcd-Index", "7")
				switch q := r.URL.Query(); {
				case q.Get("wait") != "":
					end(w)
				case q.Get("recursive") == "": // the probe
					fmt.Fprint(w, `{"action":"get","node":{"key":"/registry/services","dir":true}}`)
				default:
					lists.Add(1)
					fmt.Fprintf(w, `{"action":"get","node":{"key":"/registry/services","dir":true,"nodes":[{"key":%q,"value":%q,"modifiedIndex":5,"createdIndex":5}]}}`,
						recordstest.Spec("a"), recordstest.Port(1))
				}
			}))
			t.Cleanup(etcd.Close)
			cfg := quick(etcd.URL)
			cfg.ProbePeriod = time.Hour
			f := follow(t, cfg)
			// Each pause is at least half of 50 ms, 100, 200, 400, 800 and 1000 ms.
			f.Until(t, "lists", func() bool { return lists.Load() >= enough })
			if took, least := time.Since(began), 1275*time.Millisecond; took < least {
				t.Errorf("%d lists in %v; want pauses of at least %v in all", enough, took, least)
			}
			if st := f.Status(); st.Connected || st.Cause != what || st.Attempts < enough-3 {
				t.Errorf("connected: %v, cause %q (%s) after %d attempts; want one outage that goes on", st.Connected, st.Cause, st.Reason, st.Attempts)
			}
		})
	}
}
