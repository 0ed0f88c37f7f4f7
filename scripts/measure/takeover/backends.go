//go:build linux

package takeover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/try"
)

// Ports are those of three services. Their backends have the same, on addresses of their own.
type ports struct {
	held uint16 // TCP, all endpoints
	slow uint16 // TCP, one endpoint, which is slow to accept
	udp  uint16 // UDP, all endpoints
}

func portsFrom(base uint16) ports { return ports{base, base + 1, base + 2} }

// endpoints is how many the services have, but for the slow one.
const endpoints = 4

func at(i int, port uint16) netip.AddrPort { return netip.AddrPortFrom(load.BackendHost(i), port) }

// echoes is the id of a connection that wants back what it says. Another id is that of one that is held.
const echoes = 1<<32 - 1

// Backends are the other ends of a load.
type backends struct {
	crowd *crowd
	work  sync.WaitGroup
	open  []io.Closer // listeners and UDP sockets
}

// The slow backend. Its queue is so short that connections to it are tried again, after a second at first.
const (
	slowQueue = 4
	slowEvery = 25 * time.Millisecond
)

// openBackends opens them. Held connections play their parts until ctx ends; others are served until close.
func openBackends(ctx context.Context, l *crowd) (_ *backends, err error) {
	b := &backends{crowd: l}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	defer try.Catch(&err)
	for i := range endpoints {
		listener := try.Get(net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at(i, l.bench.at.held))))
		b.open = append(b.open, listener)
		b.work.Go(func() { b.accept(ctx, listener, 0) })
		conn := try.Get(net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at(i, l.bench.at.udp))))
		b.open = append(b.open, conn)
		_ = conn.SetReadBuffer(4 << 20) // as much as is allowed
		b.work.Go(func() { answer(conn, i) })
	}
	slow := try.Get(listenSlowly(at(0, l.bench.at.slow)))
	b.open = append(b.open, slow)
	b.work.Go(func() { b.accept(ctx, slow, slowEvery) })
	return b, nil
}

// close ends them, and waits until they have. Clients must have ended.
func (b *backends) close() {
	for _, c := range b.open {
		c.Close()
	}
	b.work.Wait()
}

// listenSlowly listens with a short queue, which package net cannot be told.
func listenSlowly(addr netip.AddrPort) (_ *net.TCPListener, err error) {
	defer try.Catch(&err)
	fd := try.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	file := os.NewFile(uintptr(fd), "slow backend")
	defer file.Close()
	try.Do(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	try.Do(unix.Bind(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}))
	try.Do(unix.Listen(fd, slowQueue))
	return try.Get(net.FileListener(file)).(*net.TCPListener), nil
}

// accept serves a listener until it is closed.
func (b *backends) accept(ctx context.Context, l *net.TCPListener, every time.Duration) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			return
		}
		b.work.Go(func() { b.serve(ctx, conn) })
		time.Sleep(every)
	}
}

// serve learns which connection it is, and plays its other side.
func (b *backends) serve(ctx context.Context, conn *net.TCPConn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now().Add(patience)) }) // fails if it is closed
	defer stop()
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		conn.Close() // its client has noticed as well
		return
	}
	id := binary.LittleEndian.Uint32(head[:])
	if id == echoes {
		defer conn.Close()
		_, _ = io.Copy(conn, conn) // its client notices
		return
	}
	if int(id) >= len(b.crowd.held) {
		b.crowd.faults.note("backend", fmt.Errorf("%w: there is no connection %d", errWrongBytes, id))
		conn.Close()
		return
	}
	c := b.crowd.held[id]
	if c.kind.client.unread {
		_ = conn.SetReadBuffer(unreadBuffer) // best effort
	}
	b.crowd.play(ctx, &b.work, c, "backend", conn, &c.down, c.kind.server, &c.up, c.kind.client)
}

// answer sends each datagram back, followed by the number of the endpoint and the address that it came from.
func answer(conn *net.UDPConn, endpoint int) {
	for buf := make([]byte, 100); ; {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		switch {
		case err == nil:
			_, _ = conn.WriteToUDPAddrPort(fmt.Appendf(buf[:n], "%d %v", endpoint, from), from) // its client counts what is lost
		case errors.Is(err, net.ErrClosed):
			return
		}
	}
}
