package proxynode

import (
	"bytes"
	"encoding/gob"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/registry"
)

func TestAReportArrivesAsItWasSent(t *testing.T) {
	name := registry.Name{Namespace: "default", Name: "web"}
	var addrs []registry.Addr
	for _, text := range []string{"10.0.0.1:80", "[fd00::1]:80", "[fe80::1%eth0]:80", "backend.example:8080"} {
		a, err := registry.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, a)
	}
	service := &registry.Service{Name: name, Created: 7, Ports: []registry.Port{{Name: "http", Number: 80}}, Since: []int64{9}}
	endpoints := &registry.Endpoints{Name: name, ByPort: []registry.PortAddrs{{Port: "http", Addrs: registry.NewAddrs(addrs...)}, {Port: "none"}}}
	settled := 3
	for _, sent := range []Report{
		{At: time.Unix(1, 0).UTC(), Update: &registry.Update{Set: true, Revision: 5,
			Services:  []registry.Change[registry.Service]{{Name: name, Value: service}},
			Endpoints: []registry.Change[registry.Endpoints]{{Name: name, Value: endpoints}, {Name: registry.Name{Name: "gone"}}}}},
		{Settled: &settled},
		{Answer: &Answer{Number: 4, state: State{
			map[registry.Name]*registry.Service{name: service}, map[registry.Name]*registry.Endpoints{name: endpoints}}}},
	} {
		var way bytes.Buffer
		if err := gob.NewEncoder(&way).Encode(encode(sent)); err != nil {
			t.Fatal(err)
		}
		var w wireReport
		if err := gob.NewDecoder(&way).Decode(&w); err != nil {
			t.Fatal(err)
		}
		got, err := w.decode()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sent, got, cmp.AllowUnexported(Answer{}), cmp.Comparer(func(a, b registry.Addrs) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("-sent +got:\n%s", diff)
		}
	}
}
