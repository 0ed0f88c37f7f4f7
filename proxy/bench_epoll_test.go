//go:build linux

package proxy

import (
	"net/netip"
	"testing"

	"kubeproxy/proxy/proxytest"
)

// The same as the benchmarks of TCP, through the epoll engine.

func BenchmarkEpollRoundTrip(b *testing.B) { benchmarkRoundTrip(b, throughEpoll) }
func BenchmarkEpollConnect(b *testing.B)   { benchmarkConnect(b, throughEpoll) }
func BenchmarkEpollBulk(b *testing.B)      { benchmarkBulk(b, throughEpoll) }

func throughEpoll(t testing.TB, to netip.AddrPort) netip.AddrPort {
	e := newEpoll(Config{BindAddress: proxytest.Loopback}.withDefaults(), newOwnPorts(proxytest.Loopback))
	port := proxytest.FreePort(t)
	s, err := e.listen(tcpPort(port), ownerOf(rotationOf(proxytest.At(to))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.close()
		e.cut()
		e.drain(t.Context())
	})
	return proxytest.On(port)
}
