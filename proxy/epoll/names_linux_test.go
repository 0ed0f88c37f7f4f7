package epoll

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
)

// The loop is told of the end of a look-up, and does not look for it: not when dials would have timed out, either. Then it looks again as
// the attempts need it.
func TestAClientThatWaitsForANameDoesNotWakeTheLoop(t *testing.T) {
	proxytest.NothingLeaks(t)
	cfg := engine.Config{BindAddress: proxytest.Loopback, DialTimeout: time.Minute, DialTotalTimeout: time.Second / 2}
	e := New(cfg.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	e.loopCount = 1
	answer := make(chan struct{})
	e.Resolver.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		select {
		case <-answer:
			return []netip.Addr{proxytest.Loopback, netip.MustParseAddr("127.0.0.2")}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	silent := proxytest.BlackHole(t)
	proxytest.ServeTCP(t, fmt.Sprintf("127.0.0.2:%d", silent.IP.Port()), proxytest.Identify("named"))
	port := proxytest.FreePort(t)
	s, err := e.Listen(enginetest.TCPPort(port), enginetest.OwnerOf(enginetest.NewRotation(enginetest.Named("db", silent.IP.Port()))))
	enginetest.Must(t, err)
	t.Cleanup(func() {
		s.Close()
		e.Drain(t.Context())
	})
	said := make(chan string, 1)
	go func() {
		name, _ := proxytest.AskTCP(proxytest.On(port))
		said <- name
	}()
	l := e.loops[0]
	proxytest.Eventually(t, func() (waits bool) {
		l.requests.Call(func() {
			if waits = len(l.dialler.ongoing) == 1; waits {
				waits = l.conns.Due() > l.turn.Now+time.Second
			}
		})
		return waits
	}, "the loop to sleep while a client waits for a name")
	close(answer)
	proxytest.Eventually(t, func() (dialled bool) {
		l.requests.Call(func() {
			dialled = len(l.dialler.ongoing) == 0
			for _, d := range l.dialler.ongoing {
				if dialled = len(d.sockets) > 0; dialled && l.conns.Due() > l.turn.Now+engine.Stagger {
					t.Errorf("an address is silent, and the loop looks at that after %v", l.conns.Due()-l.turn.Now)
				}
			}
		})
		return dialled
	}, "an address to be dialled")
	if got := proxytest.Receive(t, said, "the client to be served"); got != "named" {
		t.Errorf("the client was answered by %q", got)
	}
}
