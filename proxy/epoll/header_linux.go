package epoll

import (
	"io"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A client that comes by another proxy says who it is, by a PROXY header, before it gets an endpoint. The loop looks at the header where
// it is, in the kernel, until it is whole, and then takes it out: so a client that sends a part of a header takes no memory here, and in a
// take-over the successor looks at the same bytes.

// start begins to look for an endpoint for c, once it is known who the client is.
func (ds *dialler) start(c *relay.Conn) {
	if c.Account.AwaitsHeader() {
		ds.awaitHeader(c)
	} else {
		ds.reach(c)
	}
}

// awaitHeader begins to wait for the header of c. Most often it is there already.
func (ds *dialler) awaitHeader(c *relay.Conn) {
	ds.conns.Enter(c, relay.AwaitingHeader)
	switch ds.parseHeader(c, false) {
	case headerParsed:
		ds.reach(c)
	case headerAwaited:
		if err := ds.poller.Watch(c.ClientSocket(), c.Token(relay.ClientSide), relay.News); err != nil {
			ds.relays.End(c, traffic.DescriptorLimit)
		}
	}
}

// onHeader looks at the header of c again when an event of its client arrives.
func (ds *dialler) onHeader(c *relay.Conn, mask uint32) {
	if ds.parseHeader(c, mask&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0) == headerParsed {
		ds.poller.Unwatch(c.ClientSocket()) // until it has its endpoint
		ds.reach(c)
	}
}

// A headerState says what parseHeader has found.
type headerState uint8

const (
	headerAwaited headerState = iota // more of it has to come
	headerParsed
	headerRejected // c has ended
)

// parseHeader looks at the header of c, and receives it when it is whole. finished says that the client has sent a FIN: no more comes.
func (ds *dialler) parseHeader(c *relay.Conn, finished bool) headerState {
	fd, b := c.ClientSocket(), ds.peeked[:]
	n, errno := socket.Peek(fd, b)
	switch {
	case errno == unix.EAGAIN || socket.LacksMemory(errno): // no event reports the end of a shortage of memory: the timeout ends the wait
		return headerAwaited
	case errno != 0:
		ds.rejectHeader(c, 0, errno)
		return headerRejected
	case n == 0:
		ds.rejectHeader(c, 0, io.EOF)
		return headerRejected
	}
	h, length, err := proxyproto.Parse(b[:n], registry.TCP)
	switch {
	case err == nil && length == 0 && finished:
		err = io.EOF
		fallthrough
	case err != nil:
		ds.rejectHeader(c, n, err)
		return headerRejected
	case length == 0:
		return headerAwaited
	}
	_, _ = socket.Receive(fd, b[:length]) // it was just seen there, and only this loop reads
	if !c.Account.Introduce(h, b[:length]) {
		ds.relays.Cut(c)
		ds.relays.Free(c)
		return headerRejected
	}
	return headerParsed
}

// rejectHeader ends c, whose client sent no valid header: see [tcp.Connection.RejectHeader].
func (ds *dialler) rejectHeader(c *relay.Conn, n int, err error) {
	ds.relays.Cut(c)
	c.Account.RejectHeader(n, err)
	ds.relays.Free(c)
}
