package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/proxy/proxytest"
)

// A standing is what the keys of one revision say: which servers may be given to clients of the primary, and which to readers.
type standing struct {
	era      int // how often etcd had been restored
	revision int64
	may      map[string][]string // by the role that a service asks for
}

// A moment is when the writer sent a request. What existed then is older than what it made.
type moment struct {
	sent     time.Time
	era      int
	revision int64
}

// standing reads the keys by the simple words of the manual, and by nothing of package patroni.
func (tr *trial) standing(t *testing.T, revision int64, values map[string]string) standing {
	t.Helper()
	var primary, readers []string
	for key, value := range values {
		name, isMember := strings.CutPrefix(key, scope+"members/")
		if !isMember {
			continue
		}
		var m struct {
			ConnURL     string `json:"conn_url"`
			Role, State string
			Tags        struct{ NoLoadBalance bool }
		}
		if err := json.Unmarshal([]byte(value), &m); err != nil {
			t.Fatal(err)
		}
		server := tr.servers[strings.TrimSuffix(strings.TrimPrefix(m.ConnURL, "postgres://"), "/postgres")]
		leads, standby := name == values[scope+"leader"], m.Role == "standby_leader"
		if leads && !standby {
			primary = append(primary, server)
		}
		if (standby || m.Role == "replica" && !leads) && m.State == "running" && !m.Tags.NoLoadBalance {
			readers = append(readers, server)
		}
	}
	if len(readers) == 0 {
		readers = primary
	}
	slices.Sort(readers)
	readers = slices.Compact(readers) // two members may name one server
	return standing{tr.wrote, revision, map[string][]string{"primary": primary, "patient": primary, "cautious": primary, "replica": readers}}
}

// present is what the keys say now.
func (tr *trial) present(t *testing.T) standing {
	t.Helper()
	resp, err := tr.kv.Get(t.Context(), scope, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]string)
	for _, kv := range resp.Kvs {
		values[string(kv.Key)] = string(kv.Value)
	}
	return tr.standing(t, resp.Header.Revision, values)
}

// remember adds what the keys have said in this era, as etcd itself has kept it. Nothing changes meanwhile.
func (tr *trial) remember(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proxytest.Patience)
	defer cancel()
	values, at := make(map[string]string), int64(0)
	for resp := range tr.kv.Watch(ctx, scope, clientv3.WithPrefix(), clientv3.WithRev(tr.first)) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for i, ev := range resp.Events {
			values[string(ev.Kv.Key)] = string(ev.Kv.Value)
			if ev.Type == clientv3.EventTypeDelete {
				delete(values, string(ev.Kv.Key))
			}
			at = ev.Kv.ModRevision
			if isLast := i == len(resp.Events)-1 || resp.Events[i+1].Kv.ModRevision != at; isLast && at >= tr.base {
				tr.standings = append(tr.standings, tr.standing(t, at, values))
			}
		}
		if at >= tr.last {
			return
		}
	}
	t.Fatalf("the history of etcd has come to revision %d; want %d", at, tr.last)
}

// index finds the standing that the keys had at a revision.
func (tr *trial) index(era int, revision int64) int {
	n, found := slices.BinarySearchFunc(tr.standings, revision, func(s standing, revision int64) int {
		return cmp.Or(cmp.Compare(s.era, era), cmp.Compare(s.revision, revision))
	})
	if !found {
		n--
	}
	return max(n, 0)
}

// window has what the keys said from what was in force before a visit to the newest that there can have been when it was over.
func (tr *trial) window(v visit) []standing {
	n, _ := slices.BinarySearchFunc(tr.moments, v.over, func(m moment, over time.Time) int { return m.sent.Compare(over) })
	next := tr.moments[min(n, len(tr.moments)-1)]
	from, to := tr.index(v.from.era, v.from.revision), tr.index(next.era, next.revision-1)
	return tr.standings[from:max(from, to+1)]
}

func (tr *trial) judge(t *testing.T) {
	t.Helper()
	seen := make(map[string]int)
	for _, v := range tr.visits {
		window := tr.window(v)
		if len(window) == 0 {
			t.Fatalf("the test's own history is wrong: the node was at %+v when nothing as new as that existed", v.from)
		}
		allowed, same := 0, true
		for _, s := range window {
			if slices.Contains(s.may[v.role], v.server) {
				allowed++
			}
			same = same && slices.Equal(s.may[v.role], window[0].may[v.role])
		}
		// The portable engine hands over listeners only: its connections end with the process.
		excused := tr.engine == "portable" && (v.turn != v.from.turn || v.turn%2 == 1)
		excused = excused || v.role == "cautious" // its primary has not said that it is one: that decides only whether anybody is served
		what, fault := "", false
		switch {
		case v.stayed && errors.Is(v.err, errGone):
			what = "resets of who stayed too long"
		case v.stayed:
			what, fault = "looks at who stayed", v.err != nil && allowed == len(window) && !excused
		case v.err != nil:
			what, fault = "refusals", same && len(window[0].may[v.role]) > 0 && !excused
		default:
			what, fault = "answers", allowed == 0
			if same {
				seen["answers while nothing changed"]++
			}
		}
		if seen[what]++; fault {
			t.Errorf("a client of %s that came at %+v, in turn %d: %q, error %v, stayed %v; the keys allowed, from then to its end:", v.role, v.from, v.turn, v.server, v.err, v.stayed)
			for _, s := range window {
				t.Logf("\tera %d, revision %d: %v", s.era, s.revision, s.may[v.role])
			}
		}
	}
	t.Logf("%d standings, %d visits: %v", len(tr.standings), len(tr.visits), seen)
	for _, what := range []string{"resets of who stayed too long", "looks at who stayed", "refusals", "answers", "answers while nothing changed"} {
		if seen[what] < *patroniSteps/40 {
			t.Errorf("%s: %d; the test has shown little", what, seen[what])
		}
	}
}
