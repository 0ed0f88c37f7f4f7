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
	if c.Record.AwaitsHeader() {
		ds.greet(c)
	} else {
		ds.reach(c)
	}
}

// greet begins to wait for the header of c. Most often it is there already.
func (ds *dialler) greet(c *relay.Conn) {
	ds.conns.Enter(c, relay.Greeting)
	switch ds.meet(c, false) {
	case met:
		ds.reach(c)
	case awaited:
		if err := ds.poller.Watch(c.ClientSocket(), c.Token(relay.ClientSide), relay.News); err != nil {
			ds.relays.End(c, traffic.DescriptorLimit)
		}
	}
}

// hear looks at the header of c once more, for the kernel has told of the client.
func (ds *dialler) hear(c *relay.Conn, mask uint32) {
	if ds.meet(c, mask&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0) == met {
		ds.poller.Unwatch(c.ClientSocket()) // until it has its endpoint
		ds.reach(c)
	}
}

// A meeting is what came of a look at a header.
type meeting uint8

const (
	awaited meeting = iota // more of it has to come
	met
	parted // c has ended
)

// meet looks at the header of c, and takes it out of the kernel when it is whole. If the client has finished, no more of it comes.
func (ds *dialler) meet(c *relay.Conn, finished bool) meeting {
	fd, b := c.ClientSocket(), ds.peeked[:]
	n, errno := socket.Peek(fd, b)
	switch {
	case errno == unix.EAGAIN || socket.LacksMemory(errno): // of the latter no event tells when it is over: then time will be up
		return awaited
	case errno != 0:
		ds.unannounced(c, 0, errno)
		return parted
	case n == 0:
		ds.unannounced(c, 0, io.EOF)
		return parted
	}
	h, length, err := proxyproto.Parse(b[:n], registry.TCP)
	switch {
	case err == nil && length == 0 && finished:
		err = io.EOF
		fallthrough
	case err != nil:
		ds.unannounced(c, n, err)
		return parted
	case length == 0:
		return awaited
	}
	_, _ = socket.Receive(fd, b[:length]) // it was just seen there, and only this loop reads
	if !c.Record.Introduce(h) {
		ds.relays.Cut(c)
		ds.relays.Free(c)
		return parted
	}
	return met
}

// unannounced ends c, which has not said who it is: see [tcp.Connection.Unannounced].
func (ds *dialler) unannounced(c *relay.Conn, n int, err error) {
	ds.relays.Cut(c)
	c.Record.Unannounced(n, err)
	ds.relays.Free(c)
}
