package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// What is foretold comes true: a proxier that is given the same records lets the same services wait for
// their ports, and listens on as many.
func TestAProxierSharesOutPortsAsForetold(t *testing.T) {
	const rounds = 30
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 1))
		var r Registry
		for i := range 12 {
			namespace := []string{"", "default/", "prod/"}[random.IntN(3)]
			key := fmt.Sprintf("%s%s%c", registry.SpecsPrefix, namespace, 'a'+random.IntN(8))
			var ports []string
			for _, n := range random.Perm(6)[:1+random.IntN(3)] {
				ports = append(ports, fmt.Sprintf(`{"port":%d,"protocol":%q}`, 40_000+n, []string{"TCP", "UDP"}[random.IntN(2)]))
			}
			if slices.ContainsFunc(r.Records, func(other Record) bool { return other.Key == key }) {
				continue
			}
			r.Records = append(r.Records, Record{Key: key, Value: []byte(`{"ports":[` + strings.Join(ports, ",") + `]}`), Created: int64(seed%2) * int64(i%5)})
			if last := &r.Records[len(r.Records)-1]; seed%3 == 0 {
				last.Modified = last.Created + int64(random.IntN(9))
			}
		}
		waiting, listeners := shared(t, r)
		report := Examine(r, Options{})
		foretold := make(map[string]bool)
		for _, v := range report.Records {
			if slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Code == PortConflict }) {
				foretold[v.Name] = true
			}
		}
		if !maps.Equal(foretold, waiting) || report.Summary.Listeners != listeners {
			t.Fatalf("seed %d: foretold that %v wait, and %d listeners; but %v wait, and there are %d\n%s",
				seed, foretold, report.Summary.Listeners, waiting, listeners, findings(report))
		}
	}
}

// shared gives the services of a registry to a real proxier, and tells which of them wait for a port,
// and how many ports have an owner.
func shared(t *testing.T, r Registry) (waiting map[string]bool, ports int) {
	t.Helper()
	batch := registry.Batch{Services: make(map[registry.Name]*registry.Service)}
	flat := make(map[registry.Name]bool)
	for _, stored := range r.Records {
		record, _, err := decode.Decode(stored.Key, stored.Value)
		if err != nil {
			t.Fatal(err)
		}
		record.Service.Created = stored.Created
		record.Service.Date(nil, cmp.Or(stored.Modified, stored.Created))
		if name := record.Key.Name; batch.Services[name] == nil || flat[name] {
			batch.Services[name], flat[name] = record.Service, record.Key.Flat
		}
	}
	p := proxy.NewProxier(proxy.Config{Config: engine.Config{BindAddress: netip.MustParseAddr("127.0.0.1")}}, balance.NewLoadBalancerRR(false))
	p.OnUpdate(batch)
	status := p.Status()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(over); err != nil {
		t.Error(err)
	}
	waiting = make(map[string]bool)
	for _, port := range status {
		for _, w := range port.Waiting {
			waiting[w.Name.String()] = true
		}
	}
	return waiting, len(status)
}
