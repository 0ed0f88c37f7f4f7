package socket

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/udp"
)

// ListenTCP opens a listening socket, whose clients inherit its options: keepalive probes in this period. Package net opens it, as
// it knows best how to serve both families.
func ListenTCP(ctx context.Context, addr netip.AddrPort, keepAlive time.Duration) (fd int, err error) {
	config := net.ListenConfig{KeepAliveConfig: tcp.KeepAlive(keepAlive), Control: sockopt.PrepareListen}
	config.SetMultipathTCP(false) // its resets and half-closes are not those of TCP
	listener, err := config.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		return 0, err
	}
	if fd, err = duplicate(raw); err == nil {
		_ = sockopt.Set(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // neither can fail
		KeepAlive(fd, keepAlive)
	}
	return fd, err
}

// ListenUDP opens a socket that tells, with each datagram, which of our addresses it was sent to.
func ListenUDP(addr netip.AddrPort) (fd int, err error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := sockopt.AskReceipts(conn); err != nil {
		return 0, err
	}
	_ = conn.SetReadBuffer(udp.ReceiveBuffer) // smaller ones work too
	_ = conn.SetWriteBuffer(udp.ReceiveBuffer)
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	return duplicate(raw)
}

// duplicate returns a descriptor of our own for a socket that package net has opened and is about to close.
func duplicate(raw syscall.RawConn) (fd int, err error) {
	controlErr := raw.Control(func(theirs uintptr) { fd, err = unix.FcntlInt(theirs, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(controlErr, err)
}
