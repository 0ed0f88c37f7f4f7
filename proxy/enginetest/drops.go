package enginetest

import (
	"fmt"
	"net/netip"
	"testing"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

func (u suite) TestEveryDropHasItsReason(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	t.Run("no endpoints", func(t *testing.T) {
		e := u.newUDP(t, engine.Config{})
		s := e.Serve(t)
		proxytest.DialUDP(t, s.Addr).Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropNoEndpoints: 1})
		if n := s.Ownership.Load().Tally.Totals().Ended[traffic.NoEndpoints]; n != 0 {
			t.Errorf("%d sessions were begun for it", n)
		}
	})
	t.Run("own listener", func(t *testing.T) {
		e := u.newUDP(t, engine.Config{})
		s := e.Serve(t)
		s.Set(proxytest.At(s.Addr))
		client := proxytest.DialUDP(t, s.Addr)
		client.Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropOwnListener: 1})
		s.Set(proxytest.At(s.Addr), Identity(t, "well"))
		for range 4 {
			if got := proxytest.DialUDP(t, s.Addr).Ask(t).Name; got != "well" {
				t.Errorf("answered by %s", got)
			}
		}
	})
	t.Run("endpoint not allowed", func(t *testing.T) {
		e := u.newUDP(t, engine.Config{AllowedEndpoints: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}})
		s := e.Serve(t, Identity(t, "elsewhere"))
		proxytest.DialUDP(t, s.Addr).Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropNotAllowed: 1})
		s.Set(Identity(t, "elsewhere"), proxytest.ServeUDP(t, "127.0.0.2:0", proxytest.IdentifyUDP("well")).Addr)
		for range 4 {
			if got := proxytest.DialUDP(t, s.Addr).Ask(t).Name; got != "well" {
				t.Errorf("answered by %s", got)
			}
		}
	})
	t.Run("client not allowed", func(t *testing.T) {
		e := u.newUDP(t, engine.Config{})
		s := e.Serve(t, Identity(t, "1"))
		narrower := *s.Ownership.Load()
		narrower.Terms = &registry.Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}
		s.Ownership.Store(&narrower)
		proxytest.DialUDP(t, s.Addr).Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropSource: 1})
		proxytest.DialUDPFrom(t, netip.MustParseAddr("127.0.0.2"), s.Addr).Ask(t)
	})
	t.Run("session limit", func(t *testing.T) {
		e := u.newUDP(t, engine.Config{MaxUDPSessions: 1, MaxUDPSessionsPerService: 2})
		s := e.Serve(t, Identity(t, "1"))
		known := proxytest.DialUDP(t, s.Addr)
		known.Ask(t)
		known.Ask(t)
		proxytest.DialUDP(t, s.Addr).Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropSessionLimit: 1})
	})
	t.Run("session limit of a service", func(t *testing.T) {
		e := u.newUDP(t, engine.Config{MaxUDPSessionsPerService: 1})
		s := e.Serve(t, Identity(t, "1"))
		known := proxytest.DialUDP(t, s.Addr)
		known.Ask(t)
		known.Ask(t)
		proxytest.DialUDP(t, s.Addr).Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropServiceLimit: 1})
		known.Ask(t)
	})
	t.Run("out of descriptors", func(t *testing.T) {
		e := u.newUDP(t, engine.Config{})
		s := e.Serve(t, Identity(t, "1"))
		known, stranger := proxytest.DialUDP(t, s.Addr), proxytest.DialUDP(t, s.Addr)
		known.Ask(t)
		var taken int
		for e.Budget.TryAcquire(1) {
			taken++
		}
		stranger.Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropDescriptorLimit: 1})
		known.Ask(t)
		e.Budget.Release(taken)
		stranger.Ask(t)
	})
	t.Run("overload", func(t *testing.T) {
		e := u.newUDP(t, engine.Config{MaxUDPSessions: 8})
		s := e.Serve(t, Identity(t, "1"))
		known, stranger := proxytest.DialUDP(t, s.Addr), proxytest.DialUDP(t, s.Addr)
		known.Ask(t)
		e.Sessions.Existing.Add(8 + 1 + 64 - 1) // that have ended, and are slow to leave
		stranger.Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropOverload: 1})
		known.Ask(t)
		e.Sessions.Existing.Add(-1)
		stranger.Ask(t)
	})
	t.Run("client unreachable", func(t *testing.T) {
		e := u.newUDP(t, engine.Config{BindAddress: netip.IPv4Unspecified()})
		server := proxytest.ServeUDP(t, "[::1]:0", func([]byte, netip.AddrPort) []byte { return make([]byte, 65527) })
		s := e.Serve(t, server.Addr) // which answers more than the client's family can hold
		proxytest.DialUDP(t, proxytest.On(s.Addr.Port())).Write([]byte("question"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropClient: 1})
	})
}

// What the kernel has no room for is counted within seconds, in both directions, also when nothing more comes: what was sent was either carried
// on or counted. An engine that can stand still does so meanwhile, so that much is lost.
func (u suite) TestWhatTheKernelHasNoRoomForIsCountedWithoutAnotherDatagram(t *testing.T) {
	const many = 5000
	load := make([]byte, 1000)
	for _, c := range []struct {
		name string
		send func(client *proxytest.UDPClient, server *proxytest.UDPServer, session netip.AddrPort) error
		on   func(traffic.Totals) uint64 // datagrams that were carried on
		want uint64
	}{
		{"of a client", func(client *proxytest.UDPClient, _ *proxytest.UDPServer, _ netip.AddrPort) error {
			_, err := client.Write(load)
			return err
		}, func(sum traffic.Totals) uint64 { return sum.SentDatagrams }, many + 1},
		{"of an endpoint", func(_ *proxytest.UDPClient, server *proxytest.UDPServer, session netip.AddrPort) error {
			return server.Send(string(load), session)
		}, func(sum traffic.Totals) uint64 { return sum.ReceivedDatagrams }, many + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := u.newUDP(t, engine.Config{})
			server := proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, from netip.AddrPort) []byte {
				if len(payload) == len(load) {
					return nil
				}
				return proxytest.IdentifyUDP("1")(payload, from)
			})
			s := e.Serve(t, server.Addr)
			client := proxytest.DialUDP(t, s.Addr)
			session := client.Ask(t).Session
			if e.IsLive() {
				Must(t, e.Rest(t.Context()))
			}
			for range many {
				Must(t, c.send(client, server, session))
			}
			if e.IsLive() {
				e.Resume()
			}
			proxytest.Eventually(t, func() bool {
				return c.on(s.Ownership.Load().Tally.Totals())+s.Dropped()[traffic.DropQueueFull] == c.want
			}, "%d datagrams are carried on or counted; there are %v", c.want, stringer(func() string {
				return fmt.Sprint(c.on(s.Ownership.Load().Tally.Totals()), " and ", s.Dropped())
			}))
			if s.Dropped()[traffic.DropQueueFull] == 0 && e.IsLive() {
				t.Error("the queue had room for all: nothing was tried")
			}
			if _, err := client.Write([]byte("one more")); err != nil {
				t.Fatal(err)
			}
			proxytest.Eventually(t, func() bool {
				return c.on(s.Ownership.Load().Tally.Totals())+s.Dropped()[traffic.DropQueueFull] == c.want+1
			}, "what was counted once stays counted once")
		})
	}
}
