//go:build linux

package load

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/try"
)

// Sessions are UDP clients that come one after the other, a rate of them per second, each from a port of its
// own: they ask, wait for the answer, and go. Every other one asks a second time first, and is then known to
// mean it. It ends when there have been Most of them. Where they are not served as quickly, no more than
// mostSessions are there at once; and who hears nothing for a while asks again, as clients over UDP do.
type Sessions struct {
	Counters
	Most   int
	Rate   float64
	to     []netip.AddrPort
	poller *poller
	live   map[int]*sessionClient // by descriptor
	spare  []*sessionClient
	next   int
	buf    [4 * messageSize]byte
}

const (
	mostSessions = 256
	askAgain     = 300 * time.Millisecond
)

type sessionClient struct {
	nth         int
	began, last time.Duration // when it asked first, and last
	left        int           // answers
}

// NewSessions makes clients of these addresses, which they take in turn.
func NewSessions(to []netip.AddrPort) *Sessions {
	return &Sessions{to: to, live: make(map[int]*sessionClient)}
}

func (l *Sessions) run(c *conductor) (err error) {
	defer try.Catch(&err)
	l.poller = try.Get(newPoller())
	defer l.poller.close()
	defer func() {
		for fd := range l.live {
			unix.Close(fd)
		}
	}()
	every := time.Duration(float64(time.Second) / l.Rate)
	due := now()
	for checked := now(); (l.next < l.Most || len(l.live) > 0) && !c.stopped.Load(); {
		t := now()
		for ; due <= t && l.next < l.Most && len(l.live) < mostSessions; due += every {
			l.start(t)
		}
		wait := askAgain / 4
		if l.next < l.Most && len(l.live) < mostSessions {
			wait = min(wait, due-t)
		}
		events := try.Get(l.poller.waitExactly(wait))
		for _, ev := range events {
			l.answered(int(ev.Fd))
		}
		if t := now(); t-checked > askAgain/4 {
			checked = t
			for fd, client := range l.live {
				switch {
				case t-client.began > lostAfter:
					l.fail("no answer within %v", lostAfter)
					l.end(fd)
				case t-client.last > askAgain:
					client.last = t
					l.ask(fd, client)
				}
			}
		}
	}
	return nil
}

func (l *Sessions) start(t time.Duration) {
	l.next++
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		l.fail("socket: %v", err)
		return
	}
	client := new(sessionClient)
	if n := len(l.spare); n > 0 {
		client, l.spare = l.spare[n-1], l.spare[:n-1]
	}
	*client = sessionClient{nth: l.next, began: t, last: t, left: 1 + l.next%2}
	l.live[fd] = client
	// As for connections: many addresses, so that no port is soon used again.
	err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: sourceHost(l.next)})
	}
	if err == nil {
		err = unix.Connect(fd, address(l.to[l.next%len(l.to)]))
	}
	if err == nil {
		err = l.poller.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, fd, 0)
	}
	if err != nil {
		l.fail("a new client: %v", err)
		l.end(fd)
		return
	}
	l.ask(fd, client)
}

func (l *Sessions) ask(fd int, client *sessionClient) {
	binary.LittleEndian.PutUint64(l.buf[:], uint64(client.nth))
	if n, err := unix.Write(fd, l.buf[:messageSize]); err != nil || n != messageSize {
		l.fail("sent %d bytes: %v", n, err)
		l.end(fd)
	}
}

func (l *Sessions) answered(fd int) {
	client := l.live[fd]
	if client == nil {
		return
	}
	n, err := unix.Read(fd, l.buf[:])
	switch {
	case err != nil && again(err):
	case err != nil || n != messageSize || binary.LittleEndian.Uint64(l.buf[:]) != uint64(client.nth):
		l.fail("reading an answer: %d bytes, %v", n, err)
		l.end(fd)
	default:
		t := now()
		l.Latency.Record(t - client.began)
		client.began, client.last = t, t
		if client.left--; client.left > 0 {
			l.ask(fd, client)
			return
		}
		l.Done.Add(1)
		l.end(fd)
	}
}

func (l *Sessions) end(fd int) {
	unix.Close(fd)
	l.spare = append(l.spare, l.live[fd])
	delete(l.live, fd)
}
