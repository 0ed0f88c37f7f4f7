package main

import (
	"net/netip"
	"testing"
	"time"

	"kubeproxy/registry"
)

// An Update may reach the Mux just before the proxy is paused: then the record before it counts for as long afterwards as it would have
// without the pause, and no longer.
func TestAPauseOfTheProxyIsNoLag(t *testing.T) {
	s := &service{name: registry.Name{Namespace: "default", Name: "web"}}
	start := time.Now()
	at := func(after time.Duration) time.Time { return start.Add(after) }
	update := func(addr string) *registry.Update {
		e := &registry.Endpoints{Name: s.name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(registry.Addr{IP: netip.MustParseAddrPort(addr)})}}}
		return &registry.Update{Endpoints: []registry.Change[registry.Endpoints]{{Name: s.name, Value: e}}}
	}
	r := newRecords([]*service{s})
	r.Update(update("10.0.0.1:80"), at(time.Second))
	r.Update(update("10.0.0.2:80"), at(2*time.Second))
	r.Pause(at(2100 * time.Millisecond))
	r.Pause(at(2200 * time.Millisecond)) // which it is
	r.Resume(at(5 * time.Second))
	r.Resume(at(6 * time.Second)) // which it has
	for begin, want := range map[time.Duration]bool{2900 * time.Millisecond: true, 5100 * time.Millisecond: true, 5800 * time.Millisecond: true, 6 * time.Second: false} {
		if got := r.allowed(s.name, "10.0.0.1:80", at(begin), at(begin)); got != want {
			t.Errorf("after %v the old endpoint may answer: %t; want %t", begin, got, want)
		}
	}
}
