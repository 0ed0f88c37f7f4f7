//go:build linux

package proxy

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/portable"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/udp"
	"kubeproxy/registry"
)

func newPortable(cfg engine.Config, own *admit.OwnPorts) (engine.Engine, *engine.Base) {
	e := portable.New(cfg, own)
	return e, &e.Base
}

// echoUDP is an endpoint that allocates nothing for a datagram, so that what the benchmarks below count
// is the proxy's.
func echoUDP(t testing.TB) registry.Addr {
	t.Helper()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(proxytest.On(0)))
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		buf := make([]byte, udp.MaxDatagram)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			conn.WriteToUDPAddrPort(buf[:n], from)
		}
	})
	t.Cleanup(func() {
		conn.Close()
		reading.Wait()
	})
	return proxytest.At(conn.LocalAddr().(*net.UDPAddr).AddrPort())
}

// roundTrip has a client send a datagram and wait for its echo.
func roundTrip(t testing.TB, client *net.UDPConn, buf []byte) {
	if _, err := client.Write(buf); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Read(buf); err != nil || n != len(buf) {
		t.Fatalf("%d bytes came back, %v", n, err)
	}
}

// BenchmarkUDPRoundTrip is one client's question and answer: to the endpoint itself, through a proxy
// as one would write it in an afternoon, and through ours.
func BenchmarkUDPRoundTrip(b *testing.B) {
	paths := []struct {
		name string
		addr func(b *testing.B) netip.AddrPort
	}{
		{"direct", func(b *testing.B) netip.AddrPort { return echoUDP(b).IP }},
		{"naive", func(b *testing.B) netip.AddrPort { return naiveUDP(b, echoUDP(b).IP) }},
		{"proxied", func(b *testing.B) netip.AddrPort {
			return enginetest.Start(b, newPortable, engine.Config{}).Serve(b, echoUDP(b)).Addr
		}},
		{"wildcard", func(b *testing.B) netip.AddrPort {
			s := enginetest.Start(b, newPortable, engine.Config{BindAddress: netip.IPv4Unspecified()}).Serve(b, echoUDP(b))
			return proxytest.On(s.Addr.Port())
		}},
	}
	for _, length := range []struct {
		name  string
		bytes int
	}{{"64B", 64}, {"1400B", 1400}, {"60000B", 60_000}} {
		for _, path := range paths {
			b.Run("length="+length.name+"/path="+path.name, func(b *testing.B) {
				client, buf := proxytest.DialUDP(b, path.addr(b)).UDPConn, make([]byte, length.bytes)
				roundTrip(b, client, buf)
				b.SetBytes(int64(length.bytes))
				b.ReportAllocs()
				for b.Loop() {
					roundTrip(b, client, buf)
				}
			})
		}
	}
}

// BenchmarkUDPSession is the life of a session: a new client, its question and answer.
func BenchmarkUDPSession(b *testing.B) {
	e := enginetest.Start(b, newPortable, engine.Config{MaxUDPSessions: 1000})
	s := e.Serve(b, echoUDP(b))
	buf := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.Addr))
		if err != nil {
			b.Fatal(err)
		}
		roundTrip(b, client, buf)
		client.Close()
	}
}

// naiveUDP is v0.4's way with today's API and a longer buffer: it dials under the lock of its
// table, sets a deadline for each datagram, and each session keeps a buffer.
func naiveUDP(b *testing.B, endpoint netip.AddrPort) netip.AddrPort {
	b.Helper()
	front, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(proxytest.On(0)))
	if err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	var working sync.WaitGroup
	sessions := make(map[netip.AddrPort]*net.UDPConn)
	session := func(client netip.AddrPort) *net.UDPConn {
		mu.Lock()
		defer mu.Unlock()
		if conn := sessions[client]; conn != nil {
			return conn
		}
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(endpoint))
		if err != nil {
			b.Error(err)
			return nil
		}
		sessions[client] = conn
		working.Go(func() {
			buf := make([]byte, udp.MaxDatagram)
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				conn.SetDeadline(time.Now().Add(time.Minute))
				front.WriteToUDPAddrPort(buf[:n], client)
			}
		})
		return conn
	}
	working.Go(func() {
		buf := make([]byte, udp.MaxDatagram)
		for {
			n, client, err := front.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			conn := session(client)
			conn.Write(buf[:n])
			conn.SetDeadline(time.Now().Add(time.Minute))
		}
	})
	b.Cleanup(func() {
		front.Close()
		for _, conn := range sessions {
			conn.Close()
		}
		working.Wait()
	})
	return front.LocalAddr().(*net.UDPAddr).AddrPort()
}
