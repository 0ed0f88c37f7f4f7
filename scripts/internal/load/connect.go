//go:build linux

package load

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/try"
)

// A Connect is clients that each connect, make one round trip and close, again and again, until they are
// told to stop or there have been Most of them. The First are not among those whose latency counts.
//
// With fin a client says that it has finished, and is done when the other side has finished, too: so
// an operation that counts is one that is over, for the proxy as well. Otherwise it resets.
type Connect struct {
	Counters
	Most, First int  // 0: no bound; none
	Anywhere    bool // the system chooses the address that clients connect from, as towards another machine
	to          []netip.AddrPort
	n           int
	fin         bool
	poller      *poller
	clients     []connectClient
	targets     []unix.RawSockaddrInet4
	source      unix.RawSockaddrInet4
	ending      bool // no client connects any more
	next        int  // counts connections, to take the targets and the sources in turn
	buf         [4 * messageSize]byte
}

type connectClient struct {
	fd      int // -1: none
	started time.Duration
	nth     int
	got     int
	asked   bool // the message is sent
}

// sources is how many addresses clients connect from: each has its own 28,000 ports, which are not to
// be used again within a second while their last connection is in TIME_WAIT.
const sources = 64

// sourceHost is the address that the nth client connects from.
func sourceHost(n int) [4]byte { return [4]byte{127, 0, 3, byte(1 + n%sources)} }

// NewConnect makes n clients of these addresses.
func NewConnect(to []netip.AddrPort, n int, fin bool) *Connect {
	l := &Connect{to: to, n: n, fin: fin, source: unix.RawSockaddrInet4{Family: unix.AF_INET}}
	for _, a := range to {
		l.targets = append(l.targets, rawSockaddr(address(a)))
	}
	return l
}

func (l *Connect) run(c *conductor) (err error) {
	defer try.Catch(&err)
	l.poller = try.Get(newPoller())
	defer l.poller.close()
	l.clients = make([]connectClient, l.n)
	for i := range l.clients {
		l.start(i)
	}
	for checked := now(); !c.stopped.Load() && !l.complete(); {
		events := try.Get(l.poller.wait(100 * time.Millisecond))
		measuring := c.measuring.Load()
		for _, ev := range events {
			l.advance(int(ev.Fd), measuring)
		}
		if t := now(); t-checked > lostAfter/4 {
			checked = t
			for i := range l.clients {
				switch client := &l.clients[i]; {
				case client.fd < 0:
					l.start(i) // once more
				case t-client.started > dialTimeout:
					l.abandon(i, "not done within %v", dialTimeout)
					l.start(i)
				}
			}
		}
	}
	return l.finish()
}

// complete reports whether there have been as many connections as there should be.
func (l *Connect) complete() bool { return l.Most > 0 && l.next >= l.Most }

// finish waits for the connections that are still under way.
func (l *Connect) finish() error {
	l.ending = true
	underWay := func(c connectClient) bool { return c.fd >= 0 }
	for deadline := now() + dialTimeout; slices.ContainsFunc(l.clients, underWay) && now() < deadline; {
		events, err := l.poller.wait(100 * time.Millisecond)
		if err != nil {
			return err
		}
		for _, ev := range events {
			l.advance(int(ev.Fd), l.complete())
		}
	}
	for i := range l.clients {
		if underWay(l.clients[i]) {
			l.abandon(i, "not done within %v", dialTimeout)
		}
	}
	return nil
}

// start begins a connection. If that fails, the next check tries again.
func (l *Connect) start(i int) {
	client := &l.clients[i]
	*client = connectClient{fd: -1, started: now()}
	if l.ending || l.complete() {
		return
	}
	l.next++
	client.nth = l.next
	if !l.Anywhere {
		l.source.Addr = sourceHost(l.next)
	}
	fd, err := connectFrom(&l.source, &l.targets[l.next%len(l.targets)])
	if err != nil {
		l.fail("connect: %v", err)
		return
	}
	client.fd = fd
	// Over loopback the connection is most often there already. Else it will be writable.
	events := uint32(unix.EPOLLIN)
	if !l.ask(client) {
		events = unix.EPOLLOUT
	}
	if err := l.poller.set(unix.EPOLL_CTL_ADD, fd, events, i, 0); err != nil {
		l.abandon(i, "epoll_ctl: %v", err)
	}
}

// ask sends the message, and reports whether that was possible.
func (l *Connect) ask(client *connectClient) bool {
	n, err := write(client.fd, l.buf[:messageSize])
	client.asked = err == nil && n == messageSize
	return client.asked
}

// connected sends the message on a connection that has become writable.
func (l *Connect) connected(i int) {
	client := &l.clients[i]
	if !l.ask(client) {
		code, _ := unix.GetsockoptInt(client.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		l.abandon(i, "connecting: %v", unix.Errno(code))
		l.start(i)
	} else if err := l.poller.set(unix.EPOLL_CTL_MOD, client.fd, unix.EPOLLIN, i, 0); err != nil {
		l.abandon(i, "epoll_ctl: %v", err)
	}
}

// advance goes on with a connection on which something has happened.
func (l *Connect) advance(i int, measuring bool) {
	client := &l.clients[i]
	if client.fd < 0 {
		return
	}
	if !client.asked {
		l.connected(i)
		return
	}
	n, err := read(client.fd, l.buf[:])
	switch {
	case err != nil && again(err):
		return
	case err != nil || n == 0 && client.got < messageSize:
		l.abandon(i, "after %d bytes of the answer: %d, %v", client.got, n, err)
		l.start(i)
		return
	}
	client.got += n
	switch {
	case client.got < messageSize:
		return
	case n == 0: // both sides have finished
		closeFD(client.fd)
	case l.fin:
		if err := finishSending(client.fd); err != nil {
			l.abandon(i, "shutdown: %v", err)
			l.start(i)
		}
		return
	default:
		reset(client.fd)
	}
	l.Done.Add(1)
	if took := now() - client.started; measuring && client.nth > l.First {
		l.Latency.Record(took)
		l.Longest = max(l.Longest, took)
	}
	l.start(i)
}

// abandon counts a failure, and closes what there is of the connection.
func (l *Connect) abandon(i int, why string, args ...any) {
	l.fail(why, args...)
	if client := &l.clients[i]; client.fd >= 0 {
		reset(client.fd)
		client.fd = -1
	}
}
