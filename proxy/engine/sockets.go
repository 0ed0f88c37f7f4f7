package engine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"syscall"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// Inherit has OpenTCP and OpenUDP take the sockets of a predecessor where they would open others.
func (c *Base) Inherit(listeners map[registry.ListenerID]int) { c.inherited = listeners }

// Leftover returns the sockets of Inherit that no port has taken. The caller owns them.
func (c *Base) Leftover() map[registry.ListenerID]int {
	leftover := c.inherited
	c.inherited = nil
	return leftover
}

// CloseInherited closes the sockets of a predecessor that no service wants.
func (c *Base) CloseInherited() {
	for _, fd := range c.Leftover() {
		os.NewFile(uintptr(fd), "inherited listener").Close()
	}
}

// OpenTCP opens a listening socket. Bound to 0.0.0.0 it serves both families, as in v0.4.
func (c *Base) OpenTCP(id registry.ListenerID) (*net.TCPListener, error) {
	if f := c.inheritedSocket(id); f != nil {
		defer f.Close()
		l, err := net.FileListener(f) // has a descriptor of its own
		if err != nil {
			return nil, err
		}
		if tcp, ok := l.(*net.TCPListener); ok {
			return tcp, nil
		}
		l.Close()
		return nil, fmt.Errorf("what was inherited is a listener on %s", l.Addr().Network())
	}
	config := net.ListenConfig{KeepAlive: -1, Control: func(network, address string, raw syscall.RawConn) error {
		return cmp.Or(sockopt.PrepareListen(network, address, raw), c.prepare(network, address, raw))
	}} // an engine turns it on, also for an inherited socket
	config.SetMultipathTCP(false) // its resets and half-closes are not those of TCP
	l, err := config.Listen(c.Ctx, "tcp", c.Cfg.At(id).String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// OpenUDP opens the socket of a port, which reports with each datagram which of our addresses it was sent to. Bound to 0.0.0.0 it
// serves both families, as in v0.4: for a wildcard address package net opens an IPv6 socket that takes IPv4 too, or an IPv4 socket
// where IPv6 is off.
func (c *Base) OpenUDP(id registry.ListenerID) (*net.UDPConn, error) {
	conn, err := c.udpSocket(id)
	if err != nil {
		return nil, err
	}
	if err := sockopt.AskReceipts(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func (c *Base) udpSocket(id registry.ListenerID) (*net.UDPConn, error) {
	f := c.inheritedSocket(id)
	if f == nil {
		config := net.ListenConfig{Control: c.prepare}
		conn, err := config.ListenPacket(context.Background(), "udp", c.Cfg.At(id).String())
		if err != nil {
			return nil, err
		}
		return conn.(*net.UDPConn), nil
	}
	defer f.Close()
	conn, err := net.FilePacketConn(f) // has a descriptor of its own
	if err != nil {
		return nil, err
	}
	if udp, ok := conn.(*net.UDPConn); ok {
		return udp, nil
	}
	conn.Close()
	return nil, fmt.Errorf("what was inherited is a socket on %s", conn.LocalAddr().Network())
}

// inheritedSocket takes the socket of a predecessor for a listener; nil if there is none.
func (c *Base) inheritedSocket(id registry.ListenerID) *os.File {
	fd, ok := c.inherited[id]
	if !ok {
		return nil
	}
	delete(c.inherited, id)
	return os.NewFile(uintptr(fd), id.String())
}
