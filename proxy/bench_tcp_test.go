//go:build linux

package proxy

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
)

// Each benchmark of TCP is made three times: through the proxy, through the plainest proxy there
// can be (accept, dial, io.Copy both ways, which is splice(2) here), and without any. Clients and
// endpoints share the machine and the process with the proxy, so only the differences between the
// three tell something. Beside the time, the processor time of all of them together is reported.

func BenchmarkTCPRoundTrip(b *testing.B)       { benchmarkRoundTrip(b, throughPortable) }
func BenchmarkTCPRoundTripIOCopy(b *testing.B) { benchmarkRoundTrip(b, throughIOCopy) }
func BenchmarkTCPRoundTripDirect(b *testing.B) { benchmarkRoundTrip(b, direct) }

func BenchmarkTCPConnect(b *testing.B)       { benchmarkConnect(b, throughPortable) }
func BenchmarkTCPConnectIOCopy(b *testing.B) { benchmarkConnect(b, throughIOCopy) }
func BenchmarkTCPConnectDirect(b *testing.B) { benchmarkConnect(b, direct) }

func BenchmarkTCPBulk(b *testing.B)       { benchmarkBulk(b, throughPortable) }
func BenchmarkTCPBulkIOCopy(b *testing.B) { benchmarkBulk(b, throughIOCopy) }
func BenchmarkTCPBulkDirect(b *testing.B) { benchmarkBulk(b, direct) }

// benchmarkRoundTrip sends 64 bytes and waits for them to come back.
func benchmarkRoundTrip(b *testing.B, through func(testing.TB, netip.AddrPort) netip.AddrPort) {
	conn := benchDial(b, through(b, echo(b)))
	buf := make([]byte, 64)
	defer cpuTime(b)()
	b.ReportAllocs()
	for b.Loop() {
		thereAndBack(b, conn, buf)
	}
}

// benchmarkConnect connects, makes one round trip of 64 bytes, and closes.
func benchmarkConnect(b *testing.B, through func(testing.TB, netip.AddrPort) netip.AddrPort) {
	addr := through(b, echo(b))
	buf := make([]byte, 64)
	defer cpuTime(b)()
	b.ReportAllocs()
	for b.Loop() {
		conn := benchDial(b, addr)
		thereAndBack(b, conn, buf)
		conn.Close()
	}
}

// benchmarkBulk sends in one direction, a mebibyte at a time.
func benchmarkBulk(b *testing.B, through func(testing.TB, netip.AddrPort) netip.AddrPort) {
	const size = 1 << 20
	sink := serve(b, func(conn *net.TCPConn) {
		buf := make([]byte, 256<<10)
		for {
			for left := size; left > 0; {
				n, err := conn.Read(buf[:min(left, len(buf))])
				if err != nil {
					return
				}
				left -= n
			}
			conn.Write([]byte{1})
		}
	})
	conn := benchDial(b, through(b, sink))
	buf, done := make([]byte, size), make([]byte, 1)
	defer cpuTime(b)()
	b.SetBytes(size)
	for b.Loop() {
		if _, err := conn.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, done); err != nil {
			b.Fatal(err)
		}
	}
}

func thereAndBack(b *testing.B, conn net.Conn, buf []byte) {
	if _, err := conn.Write(buf); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(conn, buf); err != nil {
		b.Fatal(err)
	}
}

// cpuTime measures what the whole process takes of the processors until the returned function is called.
func cpuTime(b *testing.B) (stop func()) {
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") }
}

// benchDial makes a client.
func benchDial(b *testing.B, addr netip.AddrPort) *net.TCPConn {
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		b.Fatal(err)
	}
	tcp := conn.(*net.TCPConn)
	b.Cleanup(func() { tcp.Close() })
	return tcp
}

// serve runs an endpoint, each connection on a goroutine of its own.
func serve(t testing.TB, handle func(*net.TCPConn)) netip.AddrPort {
	return proxytest.ServeTCP(t, "127.0.0.1:0", handle).Addr.IP
}

func echo(t testing.TB) netip.AddrPort {
	return serve(t, func(conn *net.TCPConn) {
		buf := make([]byte, 4<<10)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if _, err := conn.Write(buf[:n]); err != nil {
				return
			}
		}
	})
}

func direct(_ testing.TB, to netip.AddrPort) netip.AddrPort { return to }

func throughIOCopy(t testing.TB, to netip.AddrPort) netip.AddrPort {
	return serve(t, func(client *net.TCPConn) {
		conn, err := net.Dial("tcp", to.String())
		if err != nil {
			return
		}
		backend := conn.(*net.TCPConn)
		defer backend.Close()
		there := make(chan struct{})
		go func() {
			defer close(there)
			io.Copy(backend, client)
			backend.CloseWrite()
		}()
		io.Copy(client, backend)
		client.CloseWrite()
		<-there
	})
}
