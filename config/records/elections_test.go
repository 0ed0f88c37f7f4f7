package records

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// describedElections are the elections of a status that was described before, and is again.
func (s *State) describedElections(t *testing.T, st *config.Status) []config.Election {
	t.Helper()
	s.Update(false, 0, time.Time{})
	s.Describe(st, time.Now())
	return st.Elections
}

// TestTheChangesOfAKeyAreCountedBeyondThoseThatAreListed: the first reading is no change, and neither is a new service that follows the key.
func TestTheChangesOfAKeyAreCountedBeyondThoseThatAreListed(t *testing.T) {
	s, st := electing(t), new(config.Status)
	if all := s.describedElections(t, st); len(all) != 0 {
		t.Errorf("before the key is read, the elections are %+v", all)
	}
	for i := range 25 {
		s.SetHolder(Holder{Key: "/leader", Value: fmt.Sprintf("m%d", i), Seen: int64(10 + i)})
	}
	s.SetHolder(Holder{Key: "/leader", Value: "m24", Seen: 99}) // the same name again
	e := s.describedElections(t, st)[0]
	if e.Key != "/leader" || e.Holder != "m24" || e.Count != 24 || len(e.Changes) != config.MaxHolderChanges || e.Changes[0].Holder != "m15" {
		t.Errorf("after 25 names, the election is %+v; want m24, 24 changes, of which those since m15 are listed", e)
	}
	put(s, registry.SpecsPrefix+"b", 100, `{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/holder-key":"/leader"}},"spec":{"ports":[{"port":2}]}}`)
	e = s.describedElections(t, st)[0]
	if want := []registry.Name{{Namespace: "default", Name: "a"}, {Namespace: "default", Name: "b"}}; !slices.Equal(e.Elects, want) || e.Services != `"a", "b"` || e.Count != 24 {
		t.Errorf("with a second service, the election is %+v", e)
	}
	s.Remove([]byte(registry.SpecsPrefix + "a"))
	s.Remove([]byte(registry.SpecsPrefix + "b"))
	if all := s.describedElections(t, st); len(all) != 0 {
		t.Errorf("no service names the key, and the elections are %+v", all)
	}
}

// TestWhatIsSaidOfAClusterHasABound, and is counted beyond it.
func TestWhatIsSaidOfAClusterHasABound(t *testing.T) {
	s, st := New(decode.Decoder{Patroni: "/service/"}), new(config.Status)
	for _, name := range []string{"one", "two"} {
		put(s, registry.SpecsPrefix+name, 1, `{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"replica"}},"spec":{"ports":[{"port":1}]}}`)
	}
	s.HolderKeys()
	says := []Holder{{Key: "/service/pg/config", Value: `{"ttl":30,"pause":true}`, Created: 1, Seen: 1}, {Key: "/service/pg/leader", Value: "m0", Created: 1, Seen: 1}}
	for i := range 150 {
		says = append(says, Holder{Key: fmt.Sprintf("/service/pg/members/m%d", i), Value: `{"conn_url":"postgres://10.0.0.1:5432/","role":"replica","state":"starting"}`, Created: 1, Seen: 1},
			Holder{Key: fmt.Sprintf("/service/pg/members/x%d", i), Value: `{`, Created: 1, Seen: 1})
	}
	l := s.NewList(2)
	for _, e := range s.entries {
		l.known = append(l.known, unchangedVersion{e, e.seen, e.leased, e.sum, e.good})
	}
	l.AddHolders("/service/pg/", says)
	s.Merge(l, 2, nil, 2)
	e := s.describedElections(t, st)[0]
	if e.Key != "/service/pg/leader" || e.Holder != "m0" || !e.Paused || e.LeftOut != 2*149 || e.Unusable != 150 || len(e.Out) != config.MaxElected || len(e.Rejected) != config.MaxElected {
		t.Errorf("of 149 replicas that start and 150 keys that are bad: %d left out, %d bad, %d and %d listed: %.300v", e.LeftOut, e.Unusable, len(e.Out), len(e.Rejected), e)
	}
	put(s, registry.SpecsPrefix+"two", 3, `{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary"}},"spec":{"ports":[{"port":1}]}}`)
	if e := s.describedElections(t, st)[0]; e.LeftOut != 149 {
		t.Errorf("one of two services wants the primary now, and %d replicas are left out; want 149", e.LeftOut)
	}
}

// TestEachClusterWhosePrimaryIsToBeAskedIsListed, whatever their number: package witness asks those that are. The others have the room that is left.
func TestEachClusterWhosePrimaryIsToBeAskedIsListed(t *testing.T) {
	s, st := New(decode.Decoder{Patroni: "/service/"}), new(config.Status)
	var all []Version
	var scopes []string
	add := func(scope, role string) {
		value := fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/patroni":%q,"kube-proxy/patroni-role":%s}},"spec":{"ports":[{"port":1}]}}`, scope, role)
		all = append(all, Version{Key: []byte(registry.SpecsPrefix + scope), Value: []byte(value), Created: 1, Revision: 1})
		scopes = append(scopes, scope)
	}
	read := func() (listed []string) {
		for _, v := range all {
			s.Put(v)
		}
		s.HolderKeys()
		l := listOf(all...)
		for _, scope := range scopes {
			l.AddHolders("/service/"+scope+"/", nil)
		}
		s.Merge(l, 2, nil, 2)
		for _, e := range s.describedElections(t, st) {
			listed = append(listed, strings.TrimSuffix(strings.TrimPrefix(e.Key, "/service/"), "/leader"))
		}
		return listed
	}
	for i := range config.MaxRejections {
		add(fmt.Sprintf("a%03d", i), `"primary"`)
		add(fmt.Sprintf("b%03d", i), `"replica","kube-proxy/patroni-stale":"ask"`) // there is no primary to ask
	}
	add("pg", `"primary","kube-proxy/patroni-stale":"ask"`)
	if listed := read(); len(listed) != config.MaxRejections || listed[0] != "pg" || listed[1] != "a000" {
		t.Errorf("%d are listed: %v; want %d, the one that asks before all others", len(listed), listed, config.MaxRejections)
	}
	var want []string
	for i := range config.MaxRejections + 1 {
		want = append(want, fmt.Sprintf("c%03d", i))
		add(want[i], `"primary","kube-proxy/patroni-stale":"ask"`)
	}
	if listed := read(); !slices.Equal(listed, append(want, "pg")) {
		t.Errorf("of %d that ask %d are listed: %v", len(want)+1, len(listed), listed)
	}
}
