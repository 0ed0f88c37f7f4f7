//go:build linux

package load

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/try"
)

// messageSize is what a round trip carries.
const messageSize = 64

// lostAfter is when a client gives up waiting for an answer, and counts a failure. Over UDP it asks
// again, over TCP it is over for this client. At the end all clients wait for what is still under way,
// so that nothing is lost unseen.
const lostAfter = 3 * time.Second

// An Echo is clients that each send a message, wait until it has come back, and go on with the
// next: as fast as they can or, with a rate, when the next one is due.
type Echo struct {
	Counters
	Rate    float64 // messages per second over all clients; 0: as fast as they can
	kind    int     // unix.SOCK_STREAM or unix.SOCK_DGRAM
	to      []netip.AddrPort
	n       int
	poller  *poller
	clients []echoClient
	idle    []int // with a rate: clients with nothing to do
	due     time.Duration
	every   time.Duration
	ending  bool // no client asks any more
	buf     [4 * messageSize]byte
}

type echoClient struct {
	fd    int
	asked time.Duration // when; with a rate: when it was due
	seq   uint64        // begins the message, so that an answer to another one shows
	got   int           // bytes of the answer
	busy  bool
}

// NewEcho makes n clients of these addresses, over TCP (unix.SOCK_STREAM) or UDP (unix.SOCK_DGRAM).
func NewEcho(kind int, to []netip.AddrPort, n int) *Echo {
	return &Echo{kind: kind, to: to, n: n}
}

func (l *Echo) run(c *conductor) (err error) {
	defer try.Catch(&err)
	l.poller = try.Get(newPoller())
	defer l.poller.close()
	defer func() {
		for _, client := range l.clients {
			reset(client.fd)
		}
	}()
	for i := range l.n {
		fd := try.Get(dial(l.kind, l.to[i%len(l.to)]))
		l.clients = append(l.clients, echoClient{fd: fd})
		try.Do(l.poller.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, i, 0))
	}
	if l.Rate > 0 {
		l.every = time.Duration(float64(time.Second) / l.Rate)
		l.due = now()
		for i := range l.clients {
			l.idle = append(l.idle, i)
		}
	} else {
		for i := range l.clients {
			l.ask(i, now())
		}
	}
	for checked := now(); !c.stopped.Load(); {
		events := try.Get(l.next())
		measuring := c.measuring.Load()
		for _, ev := range events {
			l.answered(int(ev.Fd), measuring)
		}
		if t := now(); t-checked > lostAfter/4 {
			checked = t
			l.findLost(t)
		}
	}
	return l.finish()
}

// finish waits for the answers that are still to come.
func (l *Echo) finish() error {
	l.ending = true
	for deadline := now() + lostAfter; slices.ContainsFunc(l.clients, func(c echoClient) bool { return c.busy }); {
		if now() > deadline {
			for i := range l.clients {
				if l.clients[i].busy {
					l.fail("no answer within %v", lostAfter)
				}
			}
			return nil
		}
		events, err := l.poller.wait(100 * time.Millisecond)
		if err != nil {
			return err
		}
		for _, ev := range events {
			l.answered(int(ev.Fd), false)
		}
	}
	return nil
}

// next waits for answers. With a rate, what has become due is sent first.
func (l *Echo) next() ([]unix.EpollEvent, error) {
	if l.Rate == 0 {
		return l.poller.wait(100 * time.Millisecond)
	}
	t := now()
	for ; l.due <= t && len(l.idle) > 0; l.due += l.every {
		i := l.idle[len(l.idle)-1]
		l.idle = l.idle[:len(l.idle)-1]
		l.ask(i, l.due) // late or not: a client that had to wait its turn has waited
	}
	if len(l.idle) == 0 {
		return l.poller.wait(100 * time.Millisecond)
	}
	return l.poller.waitExactly(l.due - t)
}

func (l *Echo) ask(i int, asked time.Duration) {
	client := &l.clients[i]
	client.asked, client.got, client.busy = asked, 0, true
	client.seq++
	l.send(client)
}

func (l *Echo) send(client *echoClient) {
	binary.LittleEndian.PutUint64(l.buf[:], client.seq)
	if n, err := write(client.fd, l.buf[:messageSize]); err != nil || n != messageSize {
		l.fail("sent %d bytes: %v", n, err)
	}
}

func (l *Echo) answered(i int, measuring bool) {
	client := &l.clients[i]
	n, err := read(client.fd, l.buf[:])
	switch {
	case err != nil && again(err):
		return
	case err != nil || n == 0:
		l.fail("reading an answer: %d bytes, %v", n, err)
		if l.kind == unix.SOCK_STREAM {
			l.giveUp(client)
		}
		return
	}
	if client.got == 0 && n >= 8 && binary.LittleEndian.Uint64(l.buf[:]) != client.seq {
		if l.kind == unix.SOCK_STREAM { // over UDP: late, and counted as lost when it was
			l.fail("an answer to something else")
		}
		return
	}
	if client.got += n; client.got < messageSize {
		return
	}
	t := now()
	l.Done.Add(1)
	if measuring {
		l.Latency.Record(t - client.asked)
	}
	client.busy = false
	switch {
	case l.ending:
	case l.Rate > 0:
		l.idle = append(l.idle, i)
	default:
		l.ask(i, t)
	}
}

// findLost counts clients that have waited too long.
func (l *Echo) findLost(t time.Duration) {
	for i := range l.clients {
		client := &l.clients[i]
		if !client.busy || t-client.asked < lostAfter || l.Rate > 0 && l.behind(t) {
			continue
		}
		l.fail("no answer within %v", lostAfter)
		if l.kind == unix.SOCK_STREAM {
			l.giveUp(client)
			continue
		}
		client.asked = t
		l.send(client)
	}
}

// behind reports whether more is offered than can be carried. Then a message may have been due long
// before it was sent, and is not lost.
func (l *Echo) behind(t time.Duration) bool { return t-l.due > lostAfter/2 }

// giveUp leaves a client out from now on.
func (l *Echo) giveUp(client *echoClient) {
	client.busy = false
	_ = unix.EpollCtl(l.poller.fd, unix.EPOLL_CTL_DEL, client.fd, nil) // it is registered
	l.idle = slices.DeleteFunc(l.idle, func(i int) bool { return &l.clients[i] == client })
}
