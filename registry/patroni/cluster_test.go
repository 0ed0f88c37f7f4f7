package patroni

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const prefix = "/service/pg/"

// dumped is the cluster of a dump of real keys.
func dumped(t *testing.T, name string) *Cluster {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var dump struct{ Records []struct{ Key, Value string } }
	if err := json.Unmarshal(text, &dump); err != nil {
		t.Fatal(err)
	}
	c := new(Cluster)
	for _, r := range dump.Records {
		if _, err := c.Put(strings.TrimPrefix(r.Key, prefix), []byte(r.Value), 1, 1); err != nil {
			t.Errorf("%s: %v", r.Key, err)
		}
	}
	return c
}

// says lists who serves, and after a bar why others do not.
func says(c *Cluster, terms Terms) string {
	var serve, out []string
	seats, fallback := c.Serving(&terms)
	for _, s := range seats {
		if s.Out == "" {
			serve = append(serve, s.Name+"="+s.Host)
		} else {
			out = append(out, s.Name+": "+s.Out)
		}
	}
	text := strings.Join(serve, " ") + " | " + strings.Join(out, ", ")
	if fallback {
		text += " (fallback)"
	}
	return text
}

var (
	primary = Terms{Scope: "pg"}
	replica = Terms{Scope: "pg", Replicas: true}
	alone   = Terms{Scope: "pg", Replicas: true, Alone: true}
)

func TestTheMembersOfCapturedClustersServe(t *testing.T) {
	for _, c := range []struct {
		dump  string
		terms Terms
		want  string
	}{
		{"dump-steady.json", primary, "m1=10.98.70.1:5432 | m2: not the leader, m3: not the leader"},
		{"dump-steady.json", replica, "m2=10.98.70.2:5432 m3=10.98.70.3:5432 | m1: the leader"},
		{"dump-m3-tags.json", primary, "m2=10.98.70.2:5432 | m1: not the leader, m3: not the leader"},
		{"dump-m3-tags.json", replica, "m1=10.98.70.1:5432 | m2: the leader, m3: it has the tag noloadbalance"},
		{"dump-sync.json", replica, "m1=10.98.70.1:5432 m3=10.98.70.3:5432 | m2: the leader"},
		{"dump-paused-postgres-killed.json", primary, " | m1: not the leader, m2: not the leader, m3: not the leader"},
	} {
		if got := says(dumped(t, c.dump), c.terms); got != c.want {
			t.Errorf("%s, %s: %s\nwant %s", c.dump, c.terms.Role(), got, c.want)
		}
	}
	if c := dumped(t, "dump-paused.json"); !c.Paused || c.TTL != 5 {
		t.Errorf("paused %v, ttl %d; want true, 5", c.Paused, c.TTL)
	}
}

// TestThePrimaryFollowsTheKeyAloneThroughCapturedEvents: roles and states lag behind the key, and change nothing for the primary.
func TestThePrimaryFollowsTheKeyAloneThroughCapturedEvents(t *testing.T) {
	for _, file := range []struct{ dump, events string }{{"dump-steady.json", "events-switchover.jsonl"}, {"dump-paused.json", "events-pause-kill-resume.jsonl"}} {
		c := dumped(t, file.dump)
		text, err := os.Open(filepath.Join("testdata", file.events))
		if err != nil {
			t.Fatal(err)
		}
		defer text.Close()
		leader := c.Leader
		for lines := bufio.NewScanner(text); lines.Scan(); {
			var event struct{ Type, Key, Value string }
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				t.Fatal(err)
			}
			key := strings.TrimPrefix(event.Key, prefix)
			if event.Type == "DELETE" {
				c.Delete(key)
				event.Value = ""
			} else if _, err := c.Put(key, []byte(event.Value), 1, 1); err != nil {
				t.Errorf("%s: %v", event.Key, err)
			}
			if key == "leader" {
				leader = event.Value
			}
			want := " | "
			if leader != "" {
				want = leader + "=10.98.70." + leader[1:] + ":5432 | "
			}
			if got := says(c, primary); !strings.HasPrefix(got, want) {
				t.Fatalf("%s, after %s of %s: %s; want %s…", file.events, event.Type, event.Key, got, want)
			}
		}
	}
}

func TestAReplicaIsFit(t *testing.T) {
	const running = `"conn_url":"postgres://h:1/","state":"running","role":"replica","xlog_location":1000`
	lag := replica
	lag.Lag = 100
	for _, c := range []struct {
		leader, status, member string
		terms                  Terms
		want                   string
	}{
		{"m1", `{"optime":1100}`, `{` + running + `}`, lag, "m2=h:1 | m1: the leader"},
		{"m1", `{"optime":900}`, `{` + running + `}`, lag, "m2=h:1 | m1: the leader"}, // the position is up to a loop old
		{"m1", `{"optime":1101}`, `{` + running + `}`, lag, "m1=p:5432 | m2: it is 101 bytes behind (fallback)"},
		{"m1", `{"optime":1101}`, `{` + running + `}`, replica, "m2=h:1 | m1: the leader"},
		{"m1", `{}`, `{` + running + `}`, lag, "m1=p:5432 | m2: its lag is not known (fallback)"},
		{"m1", `{"optime":1}`, `{"conn_url":"postgres://h:1/","state":"starting","role":"replica"}`, replica, `m1=p:5432 | m2: its state is "starting" (fallback)`},
		{"m1", `{"optime":1}`, `{"conn_url":"postgres://h:1/","state":"running","role":"uninitialized"}`, alone, ` | m1: the leader, m2: its role is "uninitialized"`},
		{"m1", `{"optime":1}`, `{"conn_url":"postgres://h:1/","state":"running","role":"quorum\u001b]52"}`, alone, ` | m1: the leader, m2: its role is "quorum\x1b]52"`}, // none that is known
		{"", `{"optime":1}`, `{"conn_url":"postgres://h:1/","state":"running","role":"promoted"}`, replica, ` | m1: its role is "master", m2: its role is "promoted"`},
		{"m2", `{"optime":1}`, `{"conn_url":"postgres://h:1/","state":"running","role":"standby_leader"}`, replica, `m2=h:1 | m1: its role is "master"`},
		{"m2", `{"optime":1}`, `{"conn_url":"postgres://h:1/","state":"running","role":"standby_leader"}`, primary, ` | m1: not the leader, m2: it leads a standby cluster`},
		{"m3", `{"optime":1}`, `{` + running + `}`, primary, ` | m1: not the leader, m2: not the leader`},
		{"m1", `{"optime":1}`, `{` + running + `,"tags":{"noloadbalance":false,"clonefrom":"x"}}`, replica, "m2=h:1 | m1: the leader"},
	} {
		cluster := new(Cluster)
		for _, kv := range [][2]string{{"leader", c.leader}, {"status", c.status}, {"members/m1", `{"conn_url":"postgres://p/","state":"running","role":"master"}`}, {"members/m2", c.member}} {
			if _, err := cluster.Put(kv[0], []byte(kv[1]), 1, 1); err != nil {
				t.Error(err)
			}
		}
		if got := says(cluster, c.terms); got != c.want {
			t.Errorf("leader %q, %s, %s: %s\nwant %s", c.leader, c.status, c.member, got, c.want)
		}
	}
}

// TestTheLeaderOfAStandbyClusterIsNoPrimary, from its key on: the record of a new one says for a while that it is a replica, or that of one that led an
// ordinary cluster before that it is the primary.
func TestTheLeaderOfAStandbyClusterIsNoPrimary(t *testing.T) {
	const follows = `{"ttl":30,"standby_cluster":{"host":"10.9.9.9","port":5432}}`
	c := new(Cluster)
	for _, step := range []struct{ key, value, primary, replica string }{
		{"config", follows, " | ", " | "},
		{"members/m1", "standby_leader", " | m1: not the leader", "m1=h:1 | "},
		{"members/m2", "replica", " | m1: not the leader, m2: not the leader", "m1=h:1 m2=h:1 | "},
		{"leader", "m1", " | m1: it leads a standby cluster, m2: not the leader", "m1=h:1 m2=h:1 | "},
		{"leader", "", " | m1: not the leader, m2: not the leader", "m1=h:1 m2=h:1 | "},
		{"leader", "m2", " | m1: not the leader, m2: it leads a standby cluster", "m1=h:1 m2=h:1 | "},
		{"members/m1", "replica", " | m1: not the leader, m2: it leads a standby cluster", "m1=h:1 m2=h:1 | "},
		{"config", `{"ttl":30,"standby_cluster":null}`, "m2=h:1 | m1: not the leader", "m1=h:1 | m2: the leader"},
		{"members/m2", "master", "m2=h:1 | m1: not the leader", "m1=h:1 | m2: the leader"},
		{"config", `{"ttl":30,"standby_cluster":{"create_replica_methods":["basebackup"]}}`, "m2=h:1 | m1: not the leader", "m1=h:1 | m2: the leader"}, // none by Patroni's rule
		{"config", `{"ttl":30,"standby_cluster":{"restore_command":"cp %f %p"}}`, " | m1: not the leader, m2: it leads a standby cluster", "m1=h:1 m2=h:1 | "},
		{"config", `5`, " | m1: not the leader, m2: it leads a standby cluster", "m1=h:1 m2=h:1 | "}, // not read
		{"config", `{"ttl":30,"standby_cluster":"10.9.9.9"}`, "m2=h:1 | m1: not the leader", "m1=h:1 | m2: the leader"},
		{"config", follows, " | m1: not the leader, m2: it leads a standby cluster", "m1=h:1 m2=h:1 | "},
		{"config", "", "m2=h:1 | m1: not the leader", "m1=h:1 | m2: the leader"},
	} {
		before, value := says(c, primary)+says(c, replica), step.value
		if strings.HasPrefix(step.key, "members/") {
			value = `{"conn_url":"postgres://h:1/","state":"running","role":"` + value + `"}`
		}
		var changed bool
		if value == "" {
			changed = c.Delete(step.key)
		} else {
			changed, _ = c.Put(step.key, []byte(value), 1, 1)
		}
		if p, r := says(c, primary), says(c, replica); p != step.primary || r != step.replica || !changed && p+r != before {
			t.Errorf("after %s %s, changed %v: primary %s; replicas %s\nwant %s; %s", step.key, step.value, changed, p, r, step.primary, step.replica)
		}
	}
}

// TestATagCountsAsPythonHasIt, which Patroni is written in: any value but none, false, zero and what is empty.
func TestATagCountsAsPythonHasIt(t *testing.T) {
	for tag, fit := range map[string]bool{
		`null`: true, `false`: true, `0`: true, `-0.0`: true, `""`: true, `[ ]`: true, `{ }`: true,
		`true`: false, `1`: false, `0.1`: false, `1e999`: false, `"true"`: false, `"yes"`: false, `"false"`: false, `[0]`: false, `{"a":0}`: false,
	} {
		c := new(Cluster)
		if _, err := c.Put("members/m2", []byte(`{"conn_url":"postgres://h:1/","state":"running","role":"replica","tags":{"noloadbalance":`+tag+`}}`), 1, 1); err != nil {
			t.Fatal(err)
		}
		if got := says(c, alone); (got == "m2=h:1 | ") != fit {
			t.Errorf("noloadbalance %s: %s; want it to be fit: %v", tag, got, fit)
		}
	}
}

func TestALagIsAPlainNumberOfBytes(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "16MB": 16 << 20, "500kB": 500 << 10, "+16MB": 0, "016MB": 0, "+016MB": 0, "-1MB": 0, "0": 0, "16 MB": 0, "MB": 0, "16mb": 0} {
		var terms Terms
		if err := terms.ReadLag(text); (err == nil) != (want > 0) || terms.Lag != want {
			t.Errorf("%q: %d, error %v; want %d", text, terms.Lag, err, want)
		}
	}
}

// TestABurstMakesNoReplicaSeemToBeBehindBeforeItsNextRecord: status is written first, and one that receives nothing more is left out one status later.
func TestABurstMakesNoReplicaSeemToBeBehindBeforeItsNextRecord(t *testing.T) {
	terms := alone
	terms.Lag = 100
	c := new(Cluster)
	var statuses int64
	for i, step := range []struct{ key, value, want string }{
		{"leader", "m1", " | "},
		{"members/m2", "1000", " | m2: its lag is not known"},
		{"status", "2000", " | m2: it is 1000 bytes behind"}, // what status said before is not known
		{"members/m2", "2000", "m2=h:1 | "},
		{"members/m3", "1999", "m2=h:1 m3=h:1 | "},
		{"status", "9000", "m2=h:1 m3=h:1 | "},
		{"members/m2", "9000", "m2=h:1 m3=h:1 | "},
		{"status", "9000", "m2=h:1 | m3: it is 7001 bytes behind"},
		{"members/m3", "1999", "m2=h:1 | m3: it is 7001 bytes behind"},
		{"members/m3", "8900", "m2=h:1 m3=h:1 | "},
		{"status", "500", "m2=h:1 m3=h:1 | "}, // of a restored primary
		{"members/m3", "390", "m2=h:1 | m3: it is 110 bytes behind"},
	} {
		value := step.value
		switch {
		case strings.HasPrefix(step.key, "members/"):
			value = `{"conn_url":"postgres://h:1/","state":"running","role":"replica","xlog_location":` + value + `}`
		case step.key == "status":
			value = `{"optime":` + value + `}`
			statuses++
		}
		if _, err := c.Put(step.key, []byte(value), int64(i+1), statuses); err != nil {
			t.Fatal(err)
		}
		if got := says(c, terms); got != step.want {
			t.Errorf("after %s %s: %s\nwant %s", step.key, step.value, got, step.want)
		}
	}
}

// TestWhatCannotBeReadChangesNothing, and no error shows what a conn_url may hold.
func TestWhatCannotBeReadChangesNothing(t *testing.T) {
	c := &Cluster{CheckHost: func(host string) error {
		if host == "refused:5432" {
			return errors.New("not reachable")
		}
		return nil
	}}
	good := map[string]string{
		"leader": "m1", "status": `{"optime":5}`, "config": `{"ttl":30,"pause":true}`,
		"members/m1": `{"conn_url":"postgres://u:secret@[fd00::1]:5433/db","api_url":"http://[fd00::1]:8008/patroni"}`,
	}
	for key, value := range good {
		if changed, err := c.Put(key, []byte(value), 1, 1); !changed || err != nil {
			t.Fatalf("%s: changed %v, error %v", key, changed, err)
		}
		if changed, err := c.Put(key, []byte(value), 1, 1); changed || err != nil {
			t.Errorf("%s again: changed %v, error %v", key, changed, err)
		}
	}
	const want = "m1=[fd00::1]:5433 | "
	for _, bad := range []struct{ key, value, err string }{
		{"leader", strings.Repeat("m", 300), "a name of more than 253 bytes"},
		{"status", "5", "no JSON object with an optime"},
		{"status", "null", "no JSON object with an optime"},
		{"config", `{"ttl":"secret"}`, "no JSON object with a ttl and a pause"},
		{"config", "null", "no JSON object with a ttl and a pause"},
		{"members/m1", "", "no JSON object of a member"},
		{"members/m1", `{"conn_url":7}`, "no JSON object of a member"},
		{"members/m1", `{}`, "no conn_url"},
		{"members/m1", `{"conn_url":"postgres://u:secret@h1:1,h2:2/db"}`, "its conn_url has several hosts"},
		{"members/m1", `{"conn_url":"postgres://u:secret@h1:x/db"}`, "its conn_url is no URL such as"},
		{"members/m1", `{"conn_url":"mysql://u:secret@h1/db"}`, "its conn_url is no URL such as"},
		{"members/m1", "null", "no conn_url"},
		{"members/m1", `{"conn_url":"postgres://u:secret@refused:5432/db"}`, "the host of its conn_url cannot be used: not reachable"},
		{"members/m1", `{"conn_url":"postgres://u:secret@%2Fvar%2Frun/db"}`, "its conn_url "},
		{"members/m1", `{"conn_url":"postgres:///db?host=/tmp"}`, "its conn_url has no host, or is a socket's"},
		{"members/m1", `{"conn_url":"postgres://h/","state":"` + strings.Repeat("s", 3000) + `"}`, "a text of more than 2048 bytes"},
		{"members/m1", strings.Repeat(" ", MaxValue+1), "more than 65536 bytes"},
		{"members/", `{"conn_url":"postgres://h/"}`, "a name of no or more than 253 bytes"},
	} {
		changed, err := c.Put(bad.key, []byte(bad.value), 2, 2)
		if changed || err == nil || !strings.Contains(err.Error(), bad.err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%.60s: changed %v, error %v; want %q", bad.key, bad.value, changed, err, bad.err)
		}
		if got := says(c, primary); got != want || c.TTL != 30 || !c.Paused || c.optime.at != 5 {
			t.Fatalf("after %s=%.60s: %s; want %s", bad.key, bad.value, got, want)
		}
	}
	for key := range good {
		if !c.Delete(key) || c.Delete(key) {
			t.Errorf("%s: its deletion says nothing, or twice", key)
		}
	}
	if got := says(c, primary); got != " | " || c.TTL != 0 || c.Paused {
		t.Errorf("after all was deleted: %s", got)
	}
	if changed, err := c.Put("history", []byte("["), 1, 1); changed || err != nil {
		t.Errorf("a key that means nothing: changed %v, error %v", changed, err)
	}
}

func TestAClusterHasAThousandMembersAtMost(t *testing.T) {
	c := new(Cluster)
	for i := range maxMembers {
		if _, err := c.Put("members/"+strings.Repeat("m", i%250+1)+string(rune('a'+i/250)), []byte(`{"conn_url":"postgres://h/"}`), 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Put("members/one-more", []byte(`{"conn_url":"postgres://h/"}`), 1, 1); err == nil || len(c.members) != maxMembers {
		t.Errorf("error %v, %d members", err, len(c.members))
	}
}

// FuzzMember: whatever a member writes, reading it neither panics nor shows what it holds.
func FuzzMember(f *testing.F) {
	f.Add([]byte(`{"conn_url":"postgres://u:secret@10.1.2.3:5432/db","state":"running","role":"replica","tags":{"a":[1]}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		m, err := readMember(value)
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		if (err == nil) != (m.host != "") {
			t.Errorf("host %q, error %v", m.host, err)
		}
	})
}
