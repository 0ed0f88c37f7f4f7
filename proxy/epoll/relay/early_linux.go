package relay

import (
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/tcp"
)

// What a backend gets first: the PROXY header, and what the client has said before it had a backend.

// SendEarly sends the PROXY header, if the service wants one, and what the client of c has said already to an endpoint that is being
// connected to, and reports whether that went well: its connection stands by then. What the client said and a socket does not take yet is
// held for whichever endpoint answers. The header is not: that endpoint gets one of its own.
func (r *Relays) SendEarly(c *Conn, fd int) (answered bool, err error) {
	header := len(r.header(c))
	n, errno := socket.Receive(int(c.client.fd), r.buffer[header:])
	switch {
	case errno != 0 && errno != unix.EAGAIN && !socket.LacksMemory(errno): // of which the kernel tells only once
		c.end.Broke(tcp.ClientSide, errno)
		return false, nil
	case errno == 0 && n > 0:
		c.client.readable = header+n == len(r.buffer) // otherwise that was all there was
	case header == 0:
		return false, nil
	default:
		n = 0
	}
	whole := r.buffer[:header+n]
	sent, errno := socket.Send(fd, whole)
	if errno == 0 {
		c.headed, c.backend.header = true, uint16(header)
		r.count(c, &c.backend, sent)
		whole = whole[sent:]
	} else {
		whole = whole[header:]
	}
	if len(whole) > 0 {
		c.backend.held = r.tail(whole)
	}
	switch errno {
	case 0:
		return true, nil
	case unix.EAGAIN, unix.ENOMEM, unix.ENOBUFS: // it has not answered yet
		return false, nil
	}
	return false, errno
}

// header puts the PROXY header of c at the beginning of the buffer: nothing if its service wants none.
func (r *Relays) header(c *Conn) []byte {
	if !c.Account.WantsHeader() {
		return nil
	}
	return c.Account.AppendHeader(r.buffer[:0], socket.LocalName(int(c.client.fd)))
}

// prependHeader has a backend get the PROXY header of c before all that is held for it, unless it was sent already.
func (r *Relays) prependHeader(c *Conn) {
	if c.headed {
		return
	}
	c.headed = true
	header := r.header(c)
	if len(header) == 0 {
		return
	}
	t := r.tail(header)
	if said := c.backend.held; said != nil {
		t.rest = append(t.rest, said.rest...)
		r.tails.GiveBack(said)
	}
	c.backend.held, c.backend.header = t, uint16(len(header))
}
