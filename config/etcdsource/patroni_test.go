package etcdsource

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kubeproxy/config/etcdsource/etcdtest"
)

// TestTheLeaderOfACapturedClusterIsFollowed: what Patroni 3.0.2 wrote in a switchover, and while it was paused and its primary killed, is written again.
// Roles and states in the records of members come late, or never; only the leader's key counts.
func TestTheLeaderOfACapturedClusterIsFollowed(t *testing.T) {
	for file, want := range map[string][]string{
		"events-switchover.jsonl":        {"10.0.0.1:1", "", "10.0.0.2:1"},
		"events-pause-kill-resume.jsonl": {"10.0.0.2:1", "", "10.0.0.3:1"},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.StartProcess(t)
			c := etcd.Client(t)
			put(t, c, spec("pg"), electing(leader), ends("pg"), called("m1", "m2", "m3"), leader, map[string]string{"10.0.0.1:1": "m1", "10.0.0.2:1": "m2"}[want[0]])
			f := follow(t, mayFollow(etcd.URL()))
			f.await(t, "pg:1 | pg="+want[0])
			text, err := os.Open(filepath.Join("..", "..", "registry", "patroni", "testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			defer text.Close()
			var last int64
			for lines := bufio.NewScanner(text); lines.Scan(); {
				var event struct{ Type, Key, Value string }
				if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
					t.Fatal(err)
				}
				if event.Type == "DELETE" {
					last = del(t, c, event.Key)
				} else {
					last = put(t, c, event.Key, event.Value)
				}
				if event.Key == leader {
					f.awaitRevision(t, last) // or what a node leaves out under load would be left out here
				}
			}
			put(t, c, ends("other"), addrs("10.0.1.1:1"))
			f.awaitThat(t, "the end", func() bool { return f.endpoints["other"] != nil })
			var got []string
			for _, u := range f.past() {
				for _, e := range u.Endpoints {
					if e.Name.Name != "pg" {
						continue
					}
					is := ""
					for a := range e.Value.Of("").All() {
						is += a.String()
					}
					got = append(got, is)
				}
			}
			if got = slices.Compact(got); !slices.Equal(got, want) {
				t.Errorf("in force, one after the other: %q; want %q", got, want)
			}
		})
	}
}
