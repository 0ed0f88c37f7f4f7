package main

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// The backends stand behind the steady services. Each says who it is: its own address.
type backends struct {
	wg      sync.WaitGroup
	closers []func() error // belongs to whoever starts them
}

// serveTCP starts one that answers each connection, and ends it first, so that the ports of clients are
// free again at once.
func (b *backends) serveTCP() (addr string, err error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(backendAddress, 0)))
	if err != nil {
		return "", fmt.Errorf("start a backend: %w", err)
	}
	b.closers = append(b.closers, l.Close)
	addr = l.Addr().String()
	b.wg.Go(func() {
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return // closed
			}
			b.wg.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(clientPatience)) // cannot fail on an open socket
				buf := make([]byte, 64)
				n, err := conn.Read(buf)
				if err != nil {
					return // the client notices
				}
				_, _ = conn.Write(append(buf[:n], addr...)) // likewise
			})
		}
	})
	return addr, nil
}

// serveUDP starts one that answers each datagram.
func (b *backends) serveUDP() (addr string, err error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(backendAddress, 0)))
	if err != nil {
		return "", fmt.Errorf("start a backend: %w", err)
	}
	b.closers = append(b.closers, conn.Close)
	addr = conn.LocalAddr().String()
	b.wg.Go(func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return // closed
			}
			_, _ = conn.WriteToUDPAddrPort(append(buf[:n:n], addr...), from) // the client asks again
		}
	})
	return addr, nil
}

// close ends them all, and what they are doing.
func (b *backends) close() {
	for _, c := range b.closers {
		_ = c() // nothing is left to be said
	}
	b.wg.Wait()
}
