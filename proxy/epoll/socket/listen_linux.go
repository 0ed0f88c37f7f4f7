package socket

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/udp"
	"kubeproxy/registry"
)

// ListenTCP opens a listening socket, whose clients inherit its options. Package net opens it, as it knows best how to serve both
// families.
func ListenTCP(base *engine.Base, id registry.ListenerID) (fd int, err error) {
	listener, err := base.OpenTCP(id)
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	raw, err := listener.SyscallConn()
	if err != nil {
		return 0, err
	}
	if fd, err = duplicate(raw); err == nil {
		_ = sockopt.Set(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // neither can fail
		KeepAlive(fd, base.Cfg.TCPKeepAlive)
	}
	return fd, err
}

// ListenUDP opens a socket that tells, with each datagram, which of our addresses it was sent to.
func ListenUDP(base *engine.Base, id registry.ListenerID) (fd int, err error) {
	conn, err := base.OpenUDP(id)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
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
