//go:build linux

package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/try"
)

// Clients and backends are written in one of two ways. Both are true for some users: a light client shows how much the proxy can do, one
// of goroutines how much of it is felt beside a program that is busy itself.
type Clients string

const (
	Light      Clients = "light"      // a loop over epoll on one thread
	Goroutines Clients = "goroutines" // a goroutine for each connection, and package net
)

// RoundTrips makes n clients of these addresses, each with a message under way, over TCP (unix.SOCK_STREAM) or UDP (unix.SOCK_DGRAM).
func (c Clients) RoundTrips(kind int, to []netip.AddrPort, n int) Load {
	if c == Light {
		return NewEcho(kind, to, n)
	}
	network := "tcp4"
	if kind == unix.SOCK_DGRAM {
		network = "udp4"
	}
	return &crowdOfGoroutines{n: n, client: func(i int, g *goClient) { g.talk(network, to[i%len(to)]) }}
}

// Connections makes n clients of these addresses that connect again and again; see [Connect].
func (c Clients) Connections(to []netip.AddrPort, n int, fin bool) Load {
	if c == Light {
		return NewConnect(to, n, fin)
	}
	return &crowdOfGoroutines{n: n, client: func(i int, g *goClient) {
		for turn := i; !g.told.stopped.Load(); turn += n {
			if err := g.visit(sourceHost(turn), to[turn%len(to)], fin); err != nil {
				g.fail("%v", err)
			}
		}
	}}
}

// crowdOfGoroutines is clients with a goroutine for each.
type crowdOfGoroutines struct {
	Counters
	n      int
	client func(i int, g *goClient)
}

// A goClient is what a goroutine has of its own.
type goClient struct {
	Counters
	told *conductor
	all  *Counters // whose Done counts for all
	seq  uint64
	buf  [messageSize]byte
}

func (l *crowdOfGoroutines) run(c *conductor) error {
	runtime.UnlockOSThread() // Conduct will unlock it once more, which does nothing
	clients := make([]goClient, l.n)
	var running sync.WaitGroup
	for i := range clients {
		g := &clients[i]
		g.told, g.all, g.seq = c, &l.Counters, uint64(i)<<32
		running.Go(func() { l.client(i, g) })
	}
	running.Wait()
	for i := range clients {
		l.Latency.Add(&clients[i].Latency)
		if l.Failed += clients[i].Failed; l.Why == "" {
			l.Why = clients[i].Why
		}
	}
	return nil
}

// talk makes round trips on one connection.
func (g *goClient) talk(network string, to netip.AddrPort) {
	conn, err := net.DialTimeout(network, to.String(), dialTimeout)
	if err != nil {
		g.fail("%v", err)
		return
	}
	defer abort(conn)
	for !g.told.stopped.Load() {
		began := now()
		if err := g.roundTrip(conn); err != nil {
			g.fail("%v", err)
			return
		}
		g.done(began)
	}
}

// visit connects, makes one round trip, and closes.
func (g *goClient) visit(from [4]byte, to netip.AddrPort, fin bool) error {
	began := now()
	d := net.Dialer{Timeout: dialTimeout, LocalAddr: &net.TCPAddr{IP: from[:]}, Control: chooseNoPort}
	conn, err := d.DialContext(context.Background(), "tcp4", to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := g.roundTrip(conn); err != nil {
		return err
	}
	if fin {
		err = errors.Join(conn.(*net.TCPConn).CloseWrite(), ended(conn, g.buf[:]))
	} else {
		abort(conn)
	}
	g.done(began)
	return err
}

// chooseNoPort has the kernel choose a port when it knows the target, as connectFrom does.
func chooseNoPort(_, _ string, raw syscall.RawConn) error {
	var err error
	return errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}), err)
}

// ended returns nil if all that comes is the end.
func ended(conn net.Conn, buf []byte) error {
	if n, err := conn.Read(buf); n > 0 || err != io.EOF {
		return fmt.Errorf("at the end: %d bytes, %w", n, err)
	}
	return nil
}

// abort closes a connection; over TCP by a reset, so that no TIME_WAIT keeps its port.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be gone already
	}
	conn.Close()
}

func (g *goClient) roundTrip(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(lostAfter)); err != nil {
		return err
	}
	g.seq++
	binary.LittleEndian.PutUint64(g.buf[:], g.seq)
	if _, err := conn.Write(g.buf[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, g.buf[:]); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	if binary.LittleEndian.Uint64(g.buf[:]) != g.seq {
		return errors.New("an answer to something else")
	}
	return nil
}

func (g *goClient) done(began time.Duration) {
	g.all.Done.Add(1)
	if g.told.measuring.Load() {
		g.Latency.Record(now() - began)
	}
}

// serveByGoroutines opens the backends for round trips, and serves them with a goroutine for each connection and each UDP socket.
func serveByGoroutines(ports Ports, failed chan<- error) (err error) {
	defer try.Catch(&err)
	for i := range BackendHosts {
		host := BackendHost(i)
		listener := try.Get(net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(host, ports.Echo))))
		socket := try.Get(net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, ports.UDP))))
		_ = socket.SetReadBuffer(32 << 20) // as much as is allowed
		go func() { failed <- acceptByGoroutines(listener) }()
		go func() { failed <- answerByGoroutine(socket) }()
	}
	return nil
}

func acceptByGoroutines(listener *net.TCPListener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			buf := make([]byte, 4<<10)
			for {
				n, err := conn.Read(buf)
				if err == nil {
					_, err = conn.Write(buf[:n])
				}
				if err != nil {
					return // the client has finished, or is gone
				}
			}
		}()
	}
}

func answerByGoroutine(socket *net.UDPConn) error {
	buf := make([]byte, 2<<10)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(buf)
		if err != nil {
			return err
		}
		_, _ = socket.WriteToUDPAddrPort(buf[:n], from) // what cannot be sent is lost, as datagrams may be
	}
}
