package records

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// electing returns a state with a service a whose endpoints a key elects.
func electing(t *testing.T) *State {
	t.Helper()
	s := New(decode.Decoder{HolderKeys: []string{"/"}})
	put(s, registry.SpecsPrefix+"a", 1, `{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/holder-key":"/leader"}},"spec":{"ports":[{"port":1}]}}`)
	if keys := s.HolderKeys(); len(keys) != 1 || keys[0] != "/leader" {
		t.Fatalf("the keys to follow are %q", keys)
	}
	return s
}

func put(s *State, key string, revision int64, value string) {
	s.Put(Version{Key: []byte(key), Value: []byte(value), Created: 1, Revision: revision, Leased: true})
}

// namedSlice is a slice of service a with endpoints on port 1 that have these names.
func namedSlice(hosts ...string) string {
	var endpoints, names []string
	for _, h := range hosts {
		host, name, _ := strings.Cut(h, "=")
		endpoints, names = append(endpoints, fmt.Sprintf(`{"addresses":[%q]}`, host)), append(names, host+"="+name)
	}
	return fmt.Sprintf(`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"labels":{"kubernetes.io/service-name":"a"},"annotations":{"kube-proxy/names":%q}},
		"addressType":"IPv4","ports":[{"name":"","port":1}],"endpoints":[%s]}`, strings.Join(names, ","), strings.Join(endpoints, ","))
}

func TestAKeyElectsAmongSlicesAsAmongARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := electing(t)
		is := func(want string) {
			t.Helper()
			if got := s.endpointsText(); got != want {
				t.Errorf("in force: %q; want %q", got, want)
			}
		}
		put(s, sliceKey("1"), 2, namedSlice("10.0.0.1=m1", "10.0.0.2=m2"))
		is("") // the key is not known yet
		s.SetHolder(Holder{Key: "/leader", Value: "m2", Seen: 5})
		is("a:[10.0.0.2:1]")
		put(s, sliceKey("2"), 6, namedSlice("10.0.0.3=m3", "10.0.0.4=m2"))
		is("a:[10.0.0.2:1 10.0.0.4:1]")
		s.SetHolder(Holder{Key: "/leader", Value: "m1", Seen: 4}) // older
		is("a:[10.0.0.2:1 10.0.0.4:1]")
		put(s, sliceKey("2"), 7, namedSlice("10.0.0.3=m3", "10.0.0.4=m4")) // only the names differ
		is("a:[10.0.0.2:1]")
		s.SetHolder(Holder{Key: "/leader", Value: "m3", Seen: 8})
		is("a:[10.0.0.3:1]")
		s.Remove([]byte(sliceKey("1")))
		s.Remove([]byte(sliceKey("2"))) // their leases have ended
		is("a:[10.0.0.3:1]")
		time.Sleep(keepFor)
		s.SetHolder(Holder{Key: "/leader", Value: "m1", Seen: 9})
		is("")
	})
}

func TestAListSaysWhatAKeyHolds(t *testing.T) {
	s := electing(t)
	put(s, registry.EndpointsPrefix+"a", 2, `{"kind":"Endpoints","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/names":"10.0.0.1=m1,10.0.0.2=m2"}},
		"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"ports":[{"port":1}]}]}`)
	merge := func(revision int64, value string, touched map[string]int64) (different, divergent Tally) {
		l := s.NewList(2)
		for _, e := range s.entries {
			l.known = append(l.known, unchangedVersion{e, e.seen, e.leased, e.sum, e.good})
		}
		l.AddHolders("/leader", []Holder{{Key: "/leader", Value: value, Seen: revision}})
		l.AddHolders("/other", []Holder{{Key: "/other", Value: value, Seen: revision}}) // no record names it any more
		return s.Merge(l, revision, touched, revision)
	}
	for _, c := range []struct {
		value     string
		touched   map[string]int64
		want      string
		divergent int
	}{
		{"m1", nil, "a:[10.0.0.1:1]", 0},
		{"m2", nil, "a:[10.0.0.2:1]", 1},
		{"m1", map[string]int64{"/leader": 99}, "a:[10.0.0.2:1]", 0}, // the watch has told newer
		{"m1", nil, "a:[10.0.0.1:1]", 1},
	} {
		different, divergent := merge(10, c.value, c.touched)
		if got := s.endpointsText(); got != c.want || divergent.N != c.divergent || different.N != divergent.N {
			t.Errorf("list with %s: in force %q, different %v, divergent %v; want %q, %d", c.value, got, different, divergent, c.want, c.divergent)
		}
	}
}

func TestAServiceThatNamesItsKeyNoMoreHasAllItsEndpoints(t *testing.T) {
	s := electing(t)
	put(s, registry.EndpointsPrefix+"a", 2, `{"kind":"Endpoints","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/names":"10.0.0.1=m1"}},
		"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"ports":[{"port":1}]}]}`)
	s.SetHolder(Holder{Key: "/leader", Value: "m1", Seen: 3})
	if got := s.endpointsText(); got != "a:[10.0.0.1:1]" {
		t.Errorf("in force: %q", got)
	}
	s.Remove([]byte(registry.SpecsPrefix + "a"))
	if got := s.endpointsText(); got != "a:[10.0.0.1:1 10.0.0.2:1]" || len(s.HolderKeys()) != 0 {
		t.Errorf("in force: %q; the keys to follow are %q", got, s.HolderKeys())
	}
}

// TestWhatAMemberSaidEndsWithItsKey: in another life of the key, what was good before counts no more, though nobody was told that it had been deleted.
func TestWhatAMemberSaidEndsWithItsKey(t *testing.T) {
	s := New(decode.Decoder{Patroni: "/service/"})
	put(s, registry.SpecsPrefix+"a", 1, `{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary"}},"spec":{"ports":[{"port":1}]}}`)
	if keys := s.HolderKeys(); len(keys) != 1 || keys[0] != "/service/pg/" {
		t.Fatalf("the keys to follow are %q", keys)
	}
	const good, bad = `{"conn_url":"postgres://10.0.0.1:5432/"}`, `{`
	for _, step := range []struct {
		member            string
		created, revision int64
		want              string
	}{
		{good, 2, 2, "a:[10.0.0.1:5432]"}, {bad, 2, 3, "a:[10.0.0.1:5432]"}, {bad, 4, 4, "a:"}, {good, 4, 5, "a:[10.0.0.1:5432]"}, {bad, 6, 6, "a:"},
	} {
		l := s.NewList(1)
		for _, e := range s.entries {
			l.known = append(l.known, unchangedVersion{e, e.seen, e.leased, e.sum, e.good})
		}
		l.AddHolders("/service/pg/", []Holder{{Key: "/service/pg/leader", Value: "m1", Created: 1, Seen: 1}, {Key: "/service/pg/members/m1", Value: step.member, Created: step.created, Seen: step.revision}})
		s.Merge(l, step.revision, nil, step.revision)
		if got := s.endpointsText(); got != step.want {
			t.Errorf("at revision %d: %q; want %q", step.revision, got, step.want)
		}
	}
}

// TestANameEndsWithTheSliceThatGaveIt: another slice may list the same address, which may be of another instance by then.
func TestANameEndsWithTheSliceThatGaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := electing(t)
		s.SetHolder(Holder{Key: "/leader", Value: "m1", Seen: 2})
		one := namedSlice("10.0.0.1=m1")
		put(s, sliceKey("1"), 3, one)
		put(s, sliceKey("2"), 4, slice("a", "10.0.0.1:1", "10.0.0.2:1")) // and no names
		wantEndpoints(t, s, "a:[10.0.0.1:1]", 0)
		s.Remove([]byte(sliceKey("1"))) // it stays remembered, and is not in force
		wantEndpoints(t, s, "a:", 0)
		s.Remove([]byte(sliceKey("2"))) // both are in force
		wantEndpoints(t, s, "a:[10.0.0.1:1]", 1)
		put(s, sliceKey("2"), 5, slice("a", "10.0.0.1:1"))
		wantEndpoints(t, s, "a:", 0)
		time.Sleep(keepFor)
		s.Remove([]byte(sliceKey("2"))) // the other one is forgotten
		wantEndpoints(t, s, "a:", 1)
	})
}

// TestANameOfASliceThatTheRegistryHasLostElectsForAMinute, as long as the endpoints of the slice stay in force beside others.
func TestANameOfASliceThatTheRegistryHasLostElectsForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := electing(t)
		s.SetHolder(Holder{Key: "/leader", Value: "m1", Seen: 2})
		put(s, sliceKey("1"), 3, namedSlice("10.0.0.1=m1"))
		put(s, sliceKey("2"), 4, slice("a", "10.0.0.1:1"))
		s.Remove([]byte(sliceKey("1")))
		s.WentBack()
		wantEndpoints(t, s, "a:[10.0.0.1:1]", 0)
		time.Sleep(returnFor - time.Nanosecond)
		wantEndpoints(t, s, "a:[10.0.0.1:1]", 0)
		time.Sleep(time.Nanosecond)
		wantEndpoints(t, s, "a:", 0)
	})
}

// TestAReplicaThatNoClientCanReachIsNotFit: its address is refused when its record is read, so readers have the primary, or what the record said before.
func TestAReplicaThatNoClientCanReachIsNotFit(t *testing.T) {
	member := func(name, host, role string, revision int64) Holder {
		value := fmt.Sprintf(`{"conn_url":"postgres://%s/postgres","role":%q,"state":"running"}`, host, role)
		return Holder{Key: "/service/pg/members/" + name, Value: value, Created: 1, Seen: revision}
	}
	for _, bad := range []string{"0.0.0.0:5432", "10.0.0.2:65536", "10.0.0.2:0", "a..b:5432", "[fd00::2%25no/zone]:5432", "224.0.0.1"} {
		s := New(decode.Decoder{Patroni: "/service/"})
		readers := Version{Key: []byte(registry.SpecsPrefix + "a"), Created: 1, Revision: 1,
			Value: []byte(`{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"replica"}},"spec":{"ports":[{"port":1}]}}`)}
		s.Put(readers)
		s.HolderKeys()
		l := listOf(readers)
		l.AddHolders("/service/pg/", []Holder{{Key: "/service/pg/leader", Value: "m1", Created: 1, Seen: 1}, member("m1", "10.0.0.1:5432", "master", 1), member("m2", bad, "replica", 1)})
		s.Merge(l, 1, nil, 0)
		wantEndpoints(t, s, "a:[10.0.0.1:5432]", 0)
		if _, n := s.elections["/service/pg/"].rejected(); n != 1 {
			t.Errorf("%s: %d values cannot be used; want 1", bad, n)
		}
		s.SetHolder(member("m2", "10.0.0.2:5432", "replica", 2))
		wantEndpoints(t, s, "a:[10.0.0.2:5432]", 0)
		s.SetHolder(member("m2", bad, "replica", 3))
		wantEndpoints(t, s, "a:[10.0.0.2:5432]", 0)
	}
}

// TestAKeyIsHeardByAllWhoFollowIt: one service follows the leader's key by its name, and another one the cluster that it belongs to.
func TestAKeyIsHeardByAllWhoFollowIt(t *testing.T) {
	s := New(decode.Decoder{Patroni: "/service/", HolderKeys: []string{"/"}})
	for name, annotations := range map[string]string{"a": `"kube-proxy/holder-key":"/service/pg/leader"`, "b": `"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary"`} {
		put(s, registry.SpecsPrefix+name, 1, `{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{`+annotations+`}},"spec":{"ports":[{"port":1}]}}`)
	}
	put(s, registry.EndpointsPrefix+"a", 2, `{"kind":"Endpoints","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/names":"10.0.0.1=m1,10.0.0.2=m2"}},
		"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"ports":[{"port":1}]}]}`)
	if keys := s.HolderKeys(); len(keys) != 2 {
		t.Fatalf("the keys to follow are %q", keys)
	}
	l := s.NewList(0)
	for _, e := range s.entries {
		l.known = append(l.known, unchangedVersion{e, e.seen, e.leased, e.sum, e.good})
	}
	leader := Holder{Key: "/service/pg/leader", Value: "m1", Created: 1, Seen: 1}
	l.AddHolders("/service/pg/leader", []Holder{leader})
	l.AddHolders("/service/pg/", []Holder{leader, {Key: "/service/pg/members/m1", Value: `{"conn_url":"postgres://10.0.0.1:1/"}`, Seen: 1}, {Key: "/service/pg/members/m2", Value: `{"conn_url":"postgres://10.0.0.2:1/"}`, Seen: 1}})
	s.Merge(l, 3, nil, 3)
	if got, want := s.endpointsText(), "a:[10.0.0.1:1] b:[10.0.0.1:1]"; got != want {
		t.Errorf("in force: %q; want %q", got, want)
	}
	s.SetHolder(Holder{Key: "/service/pg/leader", Value: "m2", Created: 1, Seen: 4})
	if got, want := s.endpointsText(), "a:[10.0.0.2:1] b:[10.0.0.2:1]"; got != want {
		t.Errorf("in force: %q; want %q", got, want)
	}
}

// TestAStatusThatAListSkippedIsNotTheOneBefore: after an outage the primary's position that was known may be any number of statuses old. A replica that has
// received nothing since has no newer record, and would seem to be fit.
func TestAStatusThatAListSkippedIsNotTheOneBefore(t *testing.T) {
	const fit = "a:[10.0.0.2:5432]"
	status := func(optime, created, version, seen int64) Holder {
		return Holder{Key: "/service/pg/status", Value: fmt.Sprintf(`{"optime":%d}`, optime), Created: created, Version: version, Seen: seen}
	}
	for _, c := range []struct {
		what string
		next Holder
		want string
	}{
		{"the next status", status(9000, 1, 3, 9), fit},
		{"one that was written unseen", status(9000, 1, 4, 9), "a:"},
		{"the first of another life", status(9000, 8, 1, 9), "a:"},
		{"one of another life that looks like the next", status(9000, 8, 3, 9), "a:"},
		{"a bad one", Holder{Key: "/service/pg/status", Value: "{", Created: 1, Version: 3, Seen: 9}, fit},
	} {
		for _, byWatch := range []bool{false, true} {
			s := New(decode.Decoder{Patroni: "/service/"})
			put(s, registry.SpecsPrefix+"a", 1, `{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"replica",
				"kube-proxy/patroni-lag":"1kB","kube-proxy/patroni-fallback":"none"}},"spec":{"ports":[{"port":1}]}}`)
			s.HolderKeys()
			merge := func(status Holder) {
				l := s.NewList(1)
				for _, e := range s.entries {
					l.known = append(l.known, unchangedVersion{e, e.seen, e.leased, e.sum, e.good})
				}
				replica := `{"conn_url":"postgres://10.0.0.2:5432/","role":"replica","state":"running","xlog_location":5000}`
				l.AddHolders("/service/pg/", []Holder{{Key: "/service/pg/members/m2", Value: replica, Created: 1, Version: 1, Seen: 3}, status})
				s.Merge(l, status.Seen, nil, status.Seen)
			}
			merge(status(5000, 1, 2, 2))
			if got := s.endpointsText(); got != fit {
				t.Fatalf("in force: %q; want %q", got, fit)
			}
			if byWatch {
				s.SetHolder(c.next)
			} else {
				merge(c.next)
			}
			if got := s.endpointsText(); got != c.want {
				t.Errorf("%s, by the watch: %v: in force: %q; want %q", c.what, byWatch, got, c.want)
			}
			s.SetHolder(status(9100, c.next.Created, c.next.Version+1, 11)) // the one before it is 4000 bytes ahead of the record; if it was bad, it is not known
			if got := s.endpointsText(); got != "a:" {
				t.Errorf("%s, and one more: in force: %q; want nothing", c.what, got)
			}
		}
	}
}
