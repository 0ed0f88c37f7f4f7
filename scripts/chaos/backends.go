package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// backends are the endpoints of the services. Each answers with its own address.
type backends struct {
	wg      sync.WaitGroup
	closers []func() error // for the goroutine that starts and closes them
}

// serveTCP starts a backend that answers each connection and closes it first, so that the client's port is free at once.
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
				_ = conn.SetDeadline(time.Now().Add(clientTimeout)) // cannot fail on an open socket
				buf := make([]byte, 64)
				n, err := conn.Read(buf)
				if err != nil {
					return // the client reports it
				}
				_, _ = conn.Write(append(buf[:n], addr...)) // likewise
			})
		}
	})
	return addr, nil
}

// serveUDP starts a backend that answers each datagram.
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
			_, _ = conn.WriteToUDPAddrPort(append(buf[:n:n], addr...), from) // the client repeats its question
		}
	})
	return addr, nil
}

// Close ends all backends and their connections.
func (b *backends) Close() {
	for _, c := range b.closers {
		_ = c() // the run is over
	}
	b.wg.Wait()
}

// clientTimeout is how long a client waits for an answer. It is longer than any pause of the proxy, because the run checks whether clients are
// served, and not how fast.
const clientTimeout = 15 * time.Second

// etcd has 127.0.0.1. The node has an address of its own, where services may claim any port, and so have the backends. Both addresses depend
// on the id of this process, so runs do not meet.
var (
	nodeAddress    = loopback(1)
	backendAddress = loopback(65)
)

func loopback(first int) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(first + pid>>16&63), byte(pid >> 8), byte(pid)})
}
