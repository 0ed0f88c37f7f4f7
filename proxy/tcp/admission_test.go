package tcp

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// At a limit clients wait for a while; then those that came meanwhile are refused at once, and the next ones wait anew.
func TestClientsWaitAtALimitAndAreRefusedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now() + time.Second) // a bubble begins in the year 2000, before that clock does
		base := new(engine.Base)
		base.Cfg = engine.Config{MaxConnections: 3, MaxConnectionsPerService: 2, WaitAtLimit: 50 * time.Millisecond}
		claim := func(name string) *engine.Claim {
			key := registry.PortKey{Name: registry.Name{Name: name}}
			return &engine.Claim{Key: key, Tally: traffic.NewTally(key, registry.TCP), Terms: registry.NoTerms}
		}
		web, other := claim("web"), claim("other")
		var queue, another Queue
		waits := func(want bool, when string) {
			t.Helper()
			if got := queue.Waits(base, web); got != want {
				t.Errorf("%s: waits %t, want %t", when, got, want)
			}
		}
		come := func(to *engine.Claim) Connection {
			c, ok := Admit(base, to, 80, netip.MustParseAddrPort("192.0.2.1:1"))
			if !ok {
				t.Fatal("a client within the limits is not admitted")
			}
			return c
		}
		first := come(web)
		waits(false, "one of two")
		second := come(web)
		waits(true, "two of two")
		time.Sleep(base.Cfg.WaitAtLimit - 1)
		waits(true, "just before the end of the wait")
		first.End(traffic.ClientFinished)
		waits(false, "a client has left")
		first = come(web)
		waits(true, "two of two again")
		time.Sleep(base.Cfg.WaitAtLimit)
		for range 100 {
			waits(false, "the wait was in vain")
			time.Sleep(refusing)
		}
		time.Sleep(time.Nanosecond)
		waits(true, "the next client after those")
		time.Sleep(time.Hour)
		waits(false, "however late the port asks again")

		third := come(other)
		if !another.Waits(base, other) {
			t.Error("a limit of the node lets clients of a service with room in")
		}
		for _, c := range []*Connection{&first, &second, &third} {
			c.End(traffic.ClientFinished)
		}
		waits(false, "nobody is left")
	})
}

// A port that has filled its limit begins no wait before the next client comes.
func TestAPortThatGoesOnBeginsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now() + time.Second) // a bubble begins in the year 2000, before that clock does
		base := new(engine.Base)
		base.Cfg = engine.Config{MaxConnections: 1, MaxConnectionsPerService: 1, WaitAtLimit: 50 * time.Millisecond}
		key := registry.PortKey{Name: registry.Name{Name: "web"}}
		web := &engine.Claim{Key: key, Tally: traffic.NewTally(key, registry.TCP), Terms: registry.NoTerms}
		var queue Queue
		if !queue.GoesOn(base, web) {
			t.Error("with room, the port does not go on")
		}
		c, _ := Admit(base, web, 80, netip.MustParseAddrPort("192.0.2.1:1"))
		if queue.GoesOn(base, web) {
			t.Error("at a full limit, the port goes on without asking")
		}
		time.Sleep(base.Cfg.WaitAtLimit)
		if !queue.Waits(base, web) {
			t.Error("a client that came long after the limit was filled does not wait")
		}
		time.Sleep(base.Cfg.WaitAtLimit)
		if queue.Waits(base, web) || !queue.GoesOn(base, web) {
			t.Error("the wait was in vain, and clients are not refused together")
		}
		c.End(traffic.ClientFinished)
		if !queue.GoesOn(base, web) || queue != (Queue{}) {
			t.Error("with room again, the queue still refuses")
		}
	})
}
