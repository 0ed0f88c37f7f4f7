//go:build linux

package proxy

import (
	"context"
	"net/netip"
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
)

// The same as the benchmarks of TCP, through the epoll engine.

func BenchmarkEpollRoundTrip(b *testing.B) { benchmarkRoundTrip(b, throughEpoll) }
func BenchmarkEpollConnect(b *testing.B)   { benchmarkConnect(b, throughEpoll) }
func BenchmarkEpollBulk(b *testing.B)      { benchmarkBulk(b, throughEpoll) }

func throughPortable(t testing.TB, to netip.AddrPort) netip.AddrPort { return through(t, Portable, to) }

func throughEpoll(t testing.TB, to netip.AddrPort) netip.AddrPort { return through(t, Epoll, to) }

func through(t testing.TB, kind Kind, to netip.AddrPort) netip.AddrPort {
	e := newEngine(Config{Engine: kind, Config: engine.Config{BindAddress: proxytest.Loopback}}.withDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	port := proxytest.FreePort(t)
	s, err := e.Listen(enginetest.TCPPort(port), enginetest.OwnerOf(enginetest.NewRotation(proxytest.At(to))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		ended, end := context.WithCancel(context.Background())
		end()
		e.Drain(ended)
	})
	return proxytest.On(port)
}
