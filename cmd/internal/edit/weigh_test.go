package edit

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
)

const (
	endpointsKey = registry.EndpointsPrefix + "default/web"
	sliceA       = registry.EndpointSlicesPrefix + "default/web-a"
	sliceB       = registry.EndpointSlicesPrefix + "default/web-b"
)

// slice is a record that lists addresses at port 80.
func slice(annotations string, addresses ...string) string {
	return fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","metadata":{"labels":{"kubernetes.io/service-name":"web"},"annotations":{%s}},"addressType":"IPv4",
		"endpoints":[{"addresses":[%s]}],"ports":[{"port":80}],"other":1.50}`, annotations, strings.Join(addresses, `]},{"addresses":[`))
}

// weighCases are steps on records: what they are, what is asked, and the annotation of each record then.
var weighCases = []struct {
	name    string
	records map[string]string
	steps   []weighStep
}{
	{"flat Endpoints without weights", map[string]string{endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80","10.0.0.2:80"],"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "0 10.0.0.1:80", says: "kept /registry/", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "0 10.0.0.2", fails: "no other endpoint of default/web has a weight", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "force 0 10.0.0.2", want: map[string]string{endpointsKey: "10.0.0.1:80=0,10.0.0.2:80=0"}},
		{ask: "undo 10.0.0.1:80", says: "weights 10.0.0.1:80=0,10.0.0.2:80=0 → 10.0.0.2:80=0", want: map[string]string{endpointsKey: "10.0.0.2:80=0"}},
		{ask: "undo 10.0.0.2:80", want: map[string]string{endpointsKey: ""}},
		{ask: "0 10.0.0.3:80", fails: "lists such an endpoint", want: map[string]string{endpointsKey: ""}},
	}},
	{"Endpoints of v1, with one weight for all", map[string]string{endpointsKey: `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"web","annotations":{"a":"b","kube-proxy/weight":"5"}},
		"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"ports":[{"port":80},{"name":"b","port":81}]}],"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1", want: map[string]string{endpointsKey: "10.0.0.1:80=0,10.0.0.2:80=5,10.0.0.1:81=0,10.0.0.2:81=5"}},
		{ask: "7 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=7,10.0.0.2:80=5,10.0.0.1:81=0,10.0.0.2:81=5"}},
		{ask: "undo 10.0.0.1", want: map[string]string{endpointsKey: "10.0.0.1:80=5,10.0.0.2:80=5,10.0.0.1:81=5,10.0.0.2:81=5"}},
	}},
	{"weights of hosts", map[string]string{endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80","10.0.0.2:80"],"annotations":{"kube-proxy/weight":"10.0.0.1=3, 10.0.0.2:80=4"},"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1=3,10.0.0.2:80=4,10.0.0.1:80=0"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1=3,10.0.0.2:80=4"}},
	}},
	{"a host that another hand has drained", map[string]string{endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80","10.0.0.1:81","10.0.0.2:80"],"annotations":{"kube-proxy/weight":"10.0.0.1=0"},"other":1.50}`}, []weighStep{
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1=0,10.0.0.1:80=1"}},
		{ask: "undo 10.0.0.1", want: map[string]string{endpointsKey: "10.0.0.1=0,10.0.0.1:80=1,10.0.0.1:81=1"}},
	}},
	{"slices, of which the last one counts", map[string]string{
		endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80"],"other":1.50}`,
		sliceA:       slice("", `"10.0.0.1"`, `"10.0.0.2"`), sliceB: slice(`"kube-proxy/weight":"10.0.0.2=4"`, `"10.0.0.3"`),
	}, []weighStep{
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "", sliceA: "10.0.0.1:80=0", sliceB: "10.0.0.2=4"}},
		{ask: "0 10.0.0.3:80", want: map[string]string{sliceA: "10.0.0.1:80=0", sliceB: "10.0.0.2=4,10.0.0.3:80=0"}},
		{ask: "0 10.0.0.2:80", fails: "no other endpoint", want: map[string]string{sliceA: "10.0.0.1:80=0"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{sliceA: ""}},
	}},
	{"a later slice that gives the address a weight", map[string]string{
		sliceA: slice("", `"10.0.0.1"`, `"10.0.0.2"`), sliceB: slice(`"kube-proxy/weight":"10.0.0.1:80=4"`, `"10.0.0.3"`),
	}, []weighStep{{ask: "0 10.0.0.1:80", fails: "10.0.0.1:80 would have weight 4: another record", want: map[string]string{sliceA: "", sliceB: "10.0.0.1:80=4"}}}},
	{"a standby, whose weight is 0 before the drain", map[string]string{endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80","10.0.0.2:80"],"annotations":{"kube-proxy/weight":"10.0.0.1:80=0"},"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "0 10.0.0.1:80", says: "kept /registry/", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: ""}}, // nobody has drained it by a command, so its weight is to go
	}},
	{"a drain that somebody ends by hand", map[string]string{endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80","10.0.0.2:80"],"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{byHand: new(""), ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: ""}},
		{byHand: new("10.0.0.1:80=5"), ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=5"}},
	}},
	{"a drain that somebody ends by hand, and that begins anew without an undo", map[string]string{endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80","10.0.0.2:80"],"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "7 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=7"}},
		{ask: "8 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=8"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: ""}}, // which the first of three commands has found
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{byHand: new("10.0.0.1:80=5"), ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "3 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=3"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=5"}},
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{byHand: new(""), ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: ""}},
	}},
	{"an undo after another hand has given a weight", map[string]string{endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80","10.0.0.2:80"],"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{byHand: new("10.0.0.1:80=5"), ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=5"}},
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{byHand: new("10.0.0.1:80=7"), ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=7"}},
		{ask: "0 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=0"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=7"}}, // what the other hand ended is forgotten
	}},
	{"a drain by an earlier release, which remembers less", map[string]string{endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80","10.0.0.2:80"],
		"annotations":{"kube-proxy/weight":"10.0.0.1:80=0","drained-by-hand/weights-before":"10.0.0.1:80=5"},"other":1.50}`}, []weighStep{
		{ask: "3 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=3"}},
		{ask: "undo 10.0.0.1:80", want: map[string]string{endpointsKey: "10.0.0.1:80=5"}},
	}},
	{"one weight for all of Endpoints, some of which are not ready", map[string]string{endpointsKey: `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"web","annotations":{"kube-proxy/weight":"5"}},
		"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"notReadyAddresses":[{"ip":"10.0.0.3"}],"ports":[{"port":80}]},
		{"notReadyAddresses":[{"ip":"10.0.0.4"}],"ports":[{"name":"b","port":81}]}],"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1", want: map[string]string{endpointsKey: "10.0.0.1:80=0,10.0.0.2:80=5,10.0.0.3:80=5,10.0.0.4:81=5"}},
		{ask: "undo 10.0.0.1", want: map[string]string{endpointsKey: "10.0.0.1:80=5,10.0.0.2:80=5,10.0.0.3:80=5,10.0.0.4:81=5"}},
	}},
	{"one weight for all, and an endpoint that is not ready and of no use", map[string]string{endpointsKey: `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"web","annotations":{"kube-proxy/weight":"5"}},
		"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"notReadyAddresses":[{"ip":5}],"ports":[{"port":80}]}],"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1", says: "endpoints that are not ready have no weight of their own in it now: ", want: map[string]string{endpointsKey: "10.0.0.1:80=0,10.0.0.2:80=5"}},
	}},
	{"one weight for all of Endpoints, with fields in another letter case", map[string]string{endpointsKey: `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"web","annotations":{"kube-proxy/weight":"5"}},
		"subsets":[{"Addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"NotReadyAddresses":[{"ip":"10.0.0.3"}],"ports":[{"port":80}]}],"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1", want: map[string]string{endpointsKey: "10.0.0.1:80=0,10.0.0.2:80=5,10.0.0.3:80=5"}},
	}},
	{"one weight for all of a slice, with conditions in another letter case", map[string]string{sliceA: strings.Replace(slice(`"kube-proxy/weight":"5"`, `"10.0.0.1"`, `"10.0.0.2"`, `"10.0.0.3"`),
		`{"addresses":["10.0.0.3"]}`, `{"addresses":["10.0.0.3"],"Conditions":{"ready":false}}`, 1)}, []weighStep{
		{ask: "0 10.0.0.1", want: map[string]string{sliceA: "10.0.0.1:80=0,10.0.0.2:80=5,10.0.0.3:80=5"}},
	}},
	{"one weight for all of a slice, some of which are not ready", map[string]string{sliceA: strings.Replace(slice(`"kube-proxy/weight":"0"`, `"10.0.0.1"`, `"10.0.0.2"`),
		`{"addresses":["10.0.0.2"]}`, `{"addresses":["10.0.0.2"],"conditions":{"ready":false}},{"addresses":["10.0.0.3"],"conditions":{"ready":false,"terminating":true}}`, 1)}, []weighStep{
		{ask: "1 10.0.0.1", want: map[string]string{sliceA: "10.0.0.1:80=1,10.0.0.3:80=0,10.0.0.2:80=0"}},
		{ask: "undo 10.0.0.1", want: map[string]string{sliceA: "10.0.0.1:80=0,10.0.0.3:80=0,10.0.0.2:80=0"}},
	}},
	{"a field in another letter case", map[string]string{endpointsKey: `{"id":"web","endpoints":["10.0.0.1:80","10.0.0.2:80"],"Annotations":{"kube-proxy/weight":"10.0.0.1=4"},"other":1.50}`}, []weighStep{
		{ask: "0 10.0.0.1:80", fails: `spells the field "annotations" as "Annotations"`, want: map[string]string{endpointsKey: "10.0.0.1=4"}},
	}},
	{"a field of metadata in another letter case", map[string]string{sliceA: strings.Replace(slice(`"kube-proxy/weight":"4"`, `"10.0.0.1"`, `"10.0.0.2"`), "annotations", "ANNOTATIONS", 1)}, []weighStep{
		{ask: "0 10.0.0.1:80", fails: `spells the field "annotations" as "ANNOTATIONS"`, want: map[string]string{sliceA: "4"}},
	}},
	{"a record that nodes refuse", map[string]string{endpointsKey: `{"endpoints":"other\":1.50"}`}, []weighStep{{ask: "0 10.0.0.1:80", fails: "lists such an endpoint"}}},
	{"no record", nil, []weighStep{{ask: "0 10.0.0.1:80", fails: "etcd holds no record of default/web"}}},
}

type weighStep struct {
	byHand *string // what the weights at endpointsKey are made before
	ask    string
	says   string // a part of it
	fails  string // likewise
	want   map[string]string
}

// TestAWeightIsWrittenIntoTheRecordThatCounts, and its undo restores what was there. All else in the record stays; nothing is written that nodes would
// not take, or that would leave a service without an endpoint.
func TestAWeightIsWrittenIntoTheRecordThatCounts(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	client := etcd.Client(t)
	for _, c := range weighCases {
		t.Run(c.name, func(t *testing.T) {
			if _, err := client.Delete(t.Context(), registry.Prefix, clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
			for key, value := range c.records {
				if _, err := client.Put(t.Context(), key, value); err != nil {
					t.Fatal(err)
				}
			}
			for _, step := range c.steps {
				if step.byHand != nil {
					editByHand(t, client, *step.byHand)
				}
				said, err := weigh(t, client, step.ask)
				if (err == nil) != (step.fails == "") || err != nil && !strings.Contains(err.Error(), step.fails) || !strings.Contains(said, step.says) {
					t.Errorf("%s: %q, %v; want %q, %q", step.ask, said, err, step.says, step.fails)
				}
				for key, want := range step.want {
					if got, value := annotation(t, client, key); got != want || !strings.Contains(value, `"other":1.50`) {
						t.Errorf("%s: %s has %q; want %q: %s", step.ask, key, got, want, value)
					}
				}
			}
		})
	}
}

// editByHand gives the flat record of endpoints other weights, and leaves all else.
func editByHand(t *testing.T, client *clientv3.Client, weights string) {
	t.Helper()
	_, value := annotation(t, client, endpointsKey)
	record, err := object([]byte(value))
	if err != nil {
		t.Fatal(err)
	}
	annotations, err := annotationsOf(endpointsKey, record)
	if err != nil {
		t.Fatal(err)
	}
	put(annotations, registry.WeightAnnotation, weights)
	edited, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), endpointsKey, string(edited)); err != nil {
		t.Fatal(err)
	}
}

// weigh carries out "[force] WEIGHT ADDR" or "undo ADDR".
func weigh(t *testing.T, client *clientv3.Client, ask string) (said string, err error) {
	t.Helper()
	w := Weighing{Service: registry.Name{Namespace: "default", Name: "web"}}
	words := strings.Fields(ask)
	if words[0] == "force" {
		w.Force, words = true, words[1:]
	}
	if words[0] == "undo" {
		w.Undo = true
	} else {
		fmt.Sscan(words[0], &w.Weight)
	}
	if w.Of, err = registry.ParseAddrMatch(words[1]); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = Weigh(t.Context(), client, w, Output{To: &out})
	return out.String(), err
}

// annotation returns the weights that a record says, and the record.
func annotation(t *testing.T, client *clientv3.Client, key string) (weights, value string) {
	t.Helper()
	answer, err := client.Get(t.Context(), key)
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%s: %v", key, err)
	}
	var record struct {
		Annotations map[string]string
		Metadata    struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(answer.Kvs[0].Value, &record); err != nil {
		t.Fatal(err)
	}
	return record.Annotations[registry.WeightAnnotation] + record.Metadata.Annotations[registry.WeightAnnotation], string(answer.Kvs[0].Value)
}

// TestARecordOfALeaseIsLeftToItsProgram, which would write it anew a moment later.
func TestARecordOfALeaseIsLeftToItsProgram(t *testing.T) {
	client := etcdtest.StartProcess(t).Client(t)
	lease, err := client.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), sliceA, slice("", `"10.0.0.1"`, `"10.0.0.2"`), clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := weigh(t, client, "0 10.0.0.1:80"); err == nil || !strings.Contains(err.Error(), "it belongs to a lease") {
		t.Errorf("%v", err)
	}
}

// meddling is an etcd in which somebody writes a record just before a transaction that writes.
type meddling struct {
	clientv3.KV
	key, value string
	reads      int
}

func (m *meddling) Txn(ctx context.Context) clientv3.Txn {
	if m.reads++; m.reads == 2 { // the first one reads
		_, _ = m.Put(ctx, m.key, m.value)
	}
	return m.KV.Txn(ctx)
}

// TestARecordThatHasChangedMeanwhileIsNotWritten, be it the edited one or another that counts.
func TestARecordThatHasChangedMeanwhileIsNotWritten(t *testing.T) {
	client := etcdtest.StartProcess(t).Client(t)
	plain := client.KV
	for _, key := range []string{sliceA, sliceB} {
		for of, value := range map[string]string{sliceA: slice("", `"10.0.0.1"`), sliceB: slice("", `"10.0.0.2"`)} {
			if _, err := plain.Put(t.Context(), of, value); err != nil {
				t.Fatal(err)
			}
		}
		client.KV = &meddling{KV: plain, key: key, value: slice(`"kube-proxy/weight":"0"`, `"10.0.0.2"`)}
		if _, err := weigh(t, client, "0 10.0.0.1:80"); err == nil || !strings.Contains(err.Error(), "a record has changed meanwhile") {
			t.Errorf("%s: %v", key, err)
		}
		client.KV = plain
		if got, value := annotation(t, client, sliceA); key == sliceB && got != "" {
			t.Errorf("it was written: %s", value)
		}
	}
}
