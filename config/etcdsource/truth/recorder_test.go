package truth

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"kubeproxy/registry"
)

// These tests judge the judge: a recorder that lets a wrong Update pass would make the model test
// worthless, and one that refuses a right one would make it useless. History and Updates are made up;
// no etcd takes part.

const (
	flatKey       = registry.SpecsPrefix + "a"
	namespacedKey = registry.SpecsPrefix + "default/a"
	otherKey      = registry.SpecsPrefix + "prod/b"
	recordKey     = registry.EndpointsPrefix + "prod/a"
	sliceKey      = registry.EndpointSlicesPrefix + "prod/a-1"
	slice2Key     = registry.EndpointSlicesPrefix + "prod/a-2"
)

func service(port int) string { return fmt.Sprintf(`{"kind":"Service","id":"x","port":%d}`, port) }

// slice is an endpoint slice of a service, with one endpoint.
func slice(service, ip string) string {
	return fmt.Sprintf(`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"x","labels":{"kubernetes.io/service-name":%q}},`+
		`"addressType":"IPv4","endpoints":[{"addresses":[%q]}],"ports":[{"port":80}]}`, service, ip)
}

func put(key, value string) Op { return Op{Key: key, Value: value} }

func deletion(key string) Op { return Op{Key: key, Remove: true} }

// told builds an Update from lines like "default/a=80/5": the service a on port 80, created at 5.
// "default/a" alone is a removal.
func told(set bool, revision int64, services ...string) registry.Update {
	u := registry.Update{Set: set, Revision: revision, Received: time.Unix(1, 0)}
	for _, s := range services {
		object, rest, add := strings.Cut(s, "=")
		var name registry.Name
		name.Namespace, name.Name, _ = strings.Cut(object, "/")
		c := registry.Change[registry.Service]{Name: name}
		if add {
			c.Value = &registry.Service{Name: name, Ports: []registry.Port{{}}}
			if _, err := fmt.Sscanf(rest, "%d/%d", &c.Value.Ports[0].Number, &c.Value.Created); err != nil {
				panic(err)
			}
		}
		u.Services = append(u.Services, c)
	}
	return u
}

func set(revision int64, services ...string) registry.Update {
	return told(true, revision, services...)
}

func change(revision int64, services ...string) registry.Update {
	return told(false, revision, services...)
}

// serving adds the endpoints of a service in namespace prod to an Update, all at port 80. No endpoints are a removal.
func serving(u registry.Update, service string, ips ...string) registry.Update {
	c := registry.Change[registry.Endpoints]{Name: registry.Name{Namespace: "prod", Name: service}}
	if len(ips) > 0 {
		var addrs []registry.Addr
		for _, ip := range ips {
			addr, err := registry.ParseAddr(ip + ":80")
			if err != nil {
				panic(err)
			}
			addrs = append(addrs, addr)
		}
		c.Value = &registry.Endpoints{Name: c.Name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs...)}}}
	}
	u.Endpoints = append(u.Endpoints, c)
	return u
}

// A tale is one made-up era: what was written, one transaction for each revision.
type tale struct {
	fork int64 // of an era after the first: -1 for an empty etcd
	txs  [][]Op
}

func TestTheRecorderKnowsRightFromWrong(t *testing.T) {
	bad := "{"
	for _, c := range []struct {
		name    string
		tales   []tale
		updates []registry.Update
		wrong   string // part of the complaint about the last update; "" if all are right
	}{
		{
			name:    "an empty registry",
			tales:   []tale{{}},
			updates: []registry.Update{set(1)},
		},
		{
			name:    "the first update is a change",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}}}},
			updates: []registry.Update{change(2, "default/a=80/2")},
			wrong:   "first update must be a SET",
		},
		{
			name: "put, change, delete, create again",
			tales: []tale{{txs: [][]Op{
				{put(flatKey, service(80))}, {put(flatKey, service(81))}, {deletion(flatKey)}, {put(flatKey, service(82))},
			}}},
			updates: []registry.Update{
				set(1), change(2, "default/a=80/2"), change(3, "default/a=81/2"), change(4, "default/a"), change(5, "default/a=82/5"),
			},
		},
		{
			name:    "an older value",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, service(81))}}}},
			updates: []registry.Update{set(3, "default/a=80/2")},
			wrong:   "service a: the source holds [tcp/80 None, created 2] (of revision 2, which is overtaken); the registry demands [tcp/81 None, created 2]",
		},
		{
			name:    "a newer value than the revision has",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, service(81))}}}},
			updates: []registry.Update{set(2, "default/a=81/2")},
			wrong:   "(of revision 3, which is still to come); the registry demands [tcp/80 None, created 2]",
		},
		{
			name:    "the create revision of another life",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {deletion(flatKey)}, {put(flatKey, service(80))}}}},
			updates: []registry.Update{set(2, "default/a=80/2"), set(4, "default/a=80/2")},
			wrong:   "demands [tcp/80 None, created 4]",
		},
		{
			name:    "a deleted service is still there",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {deletion(flatKey)}}}},
			updates: []registry.Update{set(3, "default/a=80/2")},
			wrong:   "the registry demands nothing",
		},
		{
			name:    "a service that nobody wrote",
			tales:   []tale{{}},
			updates: []registry.Update{set(1, "default/z=80/2")},
			wrong:   "no such key was ever written",
		},
		{
			name:    "half a transaction",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80)), put(otherKey, service(81))}}}},
			updates: []registry.Update{set(1), change(2, "default/a=80/2")},
			wrong:   "service prod/b: the source holds nothing",
		},
		{
			name:    "a response of several transactions at once",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(otherKey, service(81))}, {deletion(flatKey)}}}},
			updates: []registry.Update{set(1), change(4, "prod/b=81/3")},
		},
		{
			name:    "a change at a revision that wrote nothing below the prefix",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put("/elsewhere", "x")}}}},
			updates: []registry.Update{set(1), change(3, "default/a=80/2")},
			wrong:   "nothing below the prefix was written then",
		},
		{
			name:    "a list's revision may be one that wrote nothing below the prefix",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put("/elsewhere", "x")}}}},
			updates: []registry.Update{set(3, "default/a=80/2")},
		},
		{
			name:    "a revision that etcd has not reached",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}}}},
			updates: []registry.Update{set(3, "default/a=80/2")},
			wrong:   "revision 3, but etcd came no further than 2",
		},
		{
			name:    "the revision goes back",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put("/elsewhere", "x")}}}},
			updates: []registry.Update{set(3, "default/a=80/2"), set(2, "default/a=80/2")},
			wrong:   "the revision went back from 3 to 2",
		},
		{
			name:    "the last good version stays in force",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, bad)}}}},
			updates: []registry.Update{set(2, "default/a=80/2"), change(3), set(3, "default/a=80/2")},
		},
		{
			name:    "a last good version that the source has seen is dropped",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, bad)}}}},
			updates: []registry.Update{set(2, "default/a=80/2"), set(3)},
			wrong:   "the source holds nothing; the registry demands [tcp/80 None, created 2]",
		},
		{
			name:    "a source that starts on a bad value has no last good version",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, bad)}}}},
			updates: []registry.Update{set(3)},
		},
		{
			name:    "a source that starts on a bad value cannot know the one before",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, bad)}}}},
			updates: []registry.Update{set(3, "default/a=80/2")},
			wrong:   "the registry demands nothing",
		},
		{
			name:    "a good value between two lists may have been missed",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, service(81))}, {put(flatKey, bad)}}}},
			updates: []registry.Update{set(2, "default/a=80/2"), set(4, "default/a=80/2")},
		},
		{
			name:    "or it may have been seen",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, service(81))}, {put(flatKey, bad)}}}},
			updates: []registry.Update{set(2, "default/a=80/2"), set(4, "default/a=81/2")},
		},
		{
			name: "but then it is not forgotten again",
			tales: []tale{{txs: [][]Op{
				{put(flatKey, service(80))}, {put(flatKey, service(81))}, {put(flatKey, bad)}, {put(flatKey, bad+bad)},
			}}},
			updates: []registry.Update{set(2, "default/a=80/2"), set(4, "default/a=81/2"), set(5, "default/a=80/2")},
			wrong:   "the registry demands [tcp/81 None, created 2]",
		},
		{
			name:    "a watch misses nothing",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, service(81))}, {put(flatKey, bad)}}}},
			updates: []registry.Update{set(2, "default/a=80/2"), change(4, "default/a=80/2")},
			wrong:   "the registry demands [tcp/81 None, created 2]",
		},
		{
			name:    "a re-creation ends the last good version",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {deletion(flatKey)}, {put(flatKey, bad)}}}},
			updates: []registry.Update{set(2, "default/a=80/2"), set(4, "default/a=80/2")},
			wrong:   "the registry demands nothing",
		},
		{
			name: "the namespaced key wins, the flat one waits in its shadow",
			tales: []tale{{txs: [][]Op{
				{put(flatKey, service(80))}, {put(namespacedKey, service(81))}, {put(flatKey, service(82))}, {deletion(namespacedKey)},
			}}},
			updates: []registry.Update{set(1), change(2, "default/a=80/2"), change(3, "default/a=81/3"), change(4), change(5, "default/a=82/2")},
		},
		{
			name:    "a namespaced key without a good version hides nothing",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(namespacedKey, bad)}}}},
			updates: []registry.Update{set(3, "default/a=80/2")},
		},
		{
			name:    "the flat key wins",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}, {put(namespacedKey, service(81))}}}},
			updates: []registry.Update{set(3, "default/a=80/2")},
			wrong:   "the registry demands [tcp/81 None, created 3]",
		},
		{
			name: "restored to an older revision",
			tales: []tale{
				{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, service(81))}}},
				{fork: 2, txs: [][]Op{{put("/elsewhere", "x")}}},
			},
			updates: []registry.Update{set(3, "default/a=81/2"), set(2, "default/a=80/2"), set(3, "default/a=80/2")},
		},
		{
			name: "a restored etcd is not taken for the one before once it has been noticed",
			tales: []tale{
				{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, service(81))}}},
				{fork: 2, txs: [][]Op{{put("/elsewhere", "x")}}},
			},
			updates: []registry.Update{set(3, "default/a=80/2"), set(3, "default/a=81/2")},
			wrong:   "demands [tcp/80 None, created 2]",
		},
		{
			name: "a change must not carry the old base into a wiped etcd, even where nothing shows",
			tales: []tale{
				{txs: [][]Op{{put(flatKey, service(80))}}},
				{fork: -1, txs: [][]Op{{put(flatKey, service(70))}, {put(flatKey, service(82))}}},
			},
			updates: []registry.Update{set(2, "default/a=80/2"), change(3, "default/a=82/2")},
			wrong:   "a change from 2 to 3 continues a history that ended at 0",
		},
		{
			name: "a restored etcd that is bad where the source knows of a later good value",
			tales: []tale{
				{txs: [][]Op{{put(flatKey, service(80))}, {put(flatKey, bad)}, {put(flatKey, service(82))}}},
				{fork: 3, txs: [][]Op{{put("/elsewhere", "x")}, {put("/elsewhere", "y")}}},
			},
			updates: []registry.Update{set(2, "default/a=80/2"), change(4, "default/a=82/2"), set(5, "default/a=82/2")},
			wrong:   "the registry demands [tcp/80 None, created 2] or nothing",
		},
		{
			name: "the same revisions with other values",
			tales: []tale{
				{txs: [][]Op{{put(flatKey, service(80))}, {put(otherKey, service(81))}}},
				{fork: -1, txs: [][]Op{{put(flatKey, service(70))}, {put(otherKey, service(71))}}},
			},
			updates: []registry.Update{set(3, "default/a=80/2", "prod/b=81/3"), set(3, "default/a=70/2", "prod/b=81/3")},
			wrong:   "service prod/b: the source holds [tcp/81 None, created 3] (of revision 3 in era 0, which is over); the registry demands [tcp/71 None, created 3]",
		},
		{
			name: "slices of one service add up, and win over a record of its endpoints",
			tales: []tale{{txs: [][]Op{
				{put(recordKey, `{"kind":"Endpoints","id":"a","endpoints":["10.0.0.9:80"]}`)},
				{put(sliceKey, slice("a", "10.0.0.2"))}, {put(slice2Key, slice("a", "10.0.0.1"))}, {deletion(sliceKey), deletion(slice2Key)},
			}}},
			updates: []registry.Update{
				serving(set(2), "a", "10.0.0.9"), serving(change(3), "a", "10.0.0.2"), serving(change(4), "a", "10.0.0.1", "10.0.0.2"),
				serving(change(5), "a", "10.0.0.9"),
			},
		},
		{
			name:    "a slice that has moved to another service stays with the first",
			tales:   []tale{{txs: [][]Op{{put(sliceKey, slice("a", "10.0.0.1"))}, {put(sliceKey, slice("b", "10.0.0.1"))}}}},
			updates: []registry.Update{serving(set(2), "a", "10.0.0.1"), serving(change(3), "b", "10.0.0.1")},
			wrong:   "endpoints prod/a: the source holds [{ [10.0.0.1:80] }]; the registry demands nothing",
		},
		{
			name: "a slice is kept in a life that looks the same, of a service that this life never knew",
			tales: []tale{
				{txs: [][]Op{{put(sliceKey, slice("a", "10.0.0.1"))}}},
				{fork: -1, txs: [][]Op{{put(sliceKey, bad)}}},
				{fork: -1, txs: [][]Op{{put(sliceKey, bad+bad)}}},
			},
			updates: []registry.Update{serving(set(2), "a", "10.0.0.1"), serving(set(2), "a", "10.0.0.1")},
		},
		{
			name: "a slice of an era that is over, where the slice of now can be read",
			tales: []tale{
				{txs: [][]Op{{put(sliceKey, slice("a", "10.0.0.1"))}, {put("/elsewhere", "x")}}},
				{fork: -1, txs: [][]Op{{put(sliceKey, slice("b", "10.0.0.2"))}}},
			},
			updates: []registry.Update{serving(set(3), "a", "10.0.0.1"), serving(serving(set(2), "b", "10.0.0.2"), "a", "10.0.0.1")},
			wrong:   "endpoints prod/a: the source holds [{ [10.0.0.1:80] }]; the registry demands nothing",
		},
		{
			name:    "a SET with a removal in it",
			tales:   []tale{{}},
			updates: []registry.Update{set(1, "default/a")},
			wrong:   "a SET removes service a",
		},
		{
			name:    "one object twice",
			tales:   []tale{{txs: [][]Op{{put(flatKey, service(80))}}}},
			updates: []registry.Update{set(2, "default/a=80/2", "default/a=80/2")},
			wrong:   "it speaks of service a twice",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := madeUp(c.tales)
			r := NewRecorder(h)
			for i, u := range c.updates {
				r.Record(u)
				if last := i == len(c.updates)-1; r.err != nil && !(last && c.wrong != "") {
					t.Fatalf("update %d: %v", i+1, r.err)
				}
			}
			switch {
			case c.wrong != "" && r.err == nil:
				t.Errorf("the recorder let it pass; want a complaint with %q", c.wrong)
			case c.wrong != "" && !strings.Contains(r.err.Error(), c.wrong):
				t.Errorf("got the complaint:\n%v\nwant %q in it", r.err, c.wrong)
			}
		})
	}
}

// madeUp builds a history whose eras follow one another.
func madeUp(tales []tale) *History {
	h := new(History)
	var e *Era
	for i, tale := range tales {
		if i == 0 || tale.fork < 0 {
			e = NewEra(nil, 0)
		} else {
			e = NewEra(e, tale.fork)
		}
		for _, ops := range tale.txs {
			e.Commit(e.Head()+1, ops)
		}
		h.Add(e)
	}
	return h
}

func TestTheRecorderWaitsForTheNewestEra(t *testing.T) {
	h := madeUp([]tale{
		{txs: [][]Op{{put(flatKey, service(80))}}},
		{fork: -1, txs: [][]Op{{put(flatKey, service(81))}}},
	})
	r := NewRecorder(h)
	r.Record(set(2, "default/a=80/2"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := r.WaitFor(ctx, 2); err == nil || !strings.Contains(err.Error(), "did not reach revision 2 of era 1") {
		t.Errorf("with only the old era seen: %v; want it to go on waiting", err)
	}
	r.Record(set(2, "default/a=81/2"))
	if err := r.WaitFor(t.Context(), 2); err != nil {
		t.Error(err)
	}
}

func TestTheHistoryKnowsEveryRevision(t *testing.T) {
	h := madeUp([]tale{{txs: [][]Op{
		{put(flatKey, service(80)), put(otherKey, service(81))},
		{put(otherKey, service(82))},
		{{Key: registry.SpecsPrefix + "prod/", End: registry.SpecsPrefix + "prod0", Remove: true}},
		{put(otherKey, service(83)), put("/elsewhere", "x")},
	}}})
	e := h.Newest()
	for _, c := range []struct {
		revision, modified, created int64 // of otherKey; 0 when there is none
	}{{1, 0, 0}, {2, 2, 2}, {3, 3, 2}, {4, 0, 0}, {5, 5, 5}, {9, 5, 5}} {
		var modified, created int64
		if v := e.at(otherKey, c.revision); v != nil {
			modified, created = v.Revision, v.Created
		}
		if modified != c.modified || created != c.created {
			t.Errorf("at %d: modified %d, created %d; want %d, %d", c.revision, modified, created, c.modified, c.created)
		}
	}
	if n := len(e.State(5)); n != 2 {
		t.Errorf("%d keys at revision 5; want 2, and none from outside the prefix", n)
	}
	a := NewEra(e, 4)
	b := NewEra(NewEra(e, 3), 5)
	for _, c := range []struct {
		a, b *Era
		want int64
	}{{e, e, 1 << 62}, {e, a, 4}, {a, b, 3}, {b, a, 3}, {a, NewEra(nil, 0), 0}} {
		if got := shared(c.a, c.b); got != c.want {
			t.Errorf("eras share %d; want %d", got, c.want)
		}
	}
}
