//go:build linux

package load

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/try"
)

// Round trips over UDP are an Echo. This file has what does not wait for answers.

// A Burst is many datagrams from many clients, all at once.
type Burst struct {
	Clients, Each int
}

// quiet is after how much silence no more answers to a burst are expected.
const quiet = time.Second

// Fire sends the burst, each client one datagram in turn, as fast as one thread can; then collects
// answers until none has come for a while. Nothing is sent twice: what is lost stays lost.
func (b Burst) Fire(to []netip.AddrPort) (sent, answered int, err error) {
	defer try.Catch(&err)
	p := try.Get(newPoller())
	defer p.close()
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for i := range b.Clients {
		fd := try.Get(dial(unix.SOCK_DGRAM, to[i%len(to)]))
		fds = append(fds, fd)
		try.Do(p.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, i, 0))
		// Room for all its answers, so that what is lost is not lost here.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, b.Each*2048); err != nil {
			return 0, 0, fmt.Errorf("receive buffer: %w", err)
		}
	}
	var message, answer [messageSize]byte
	for range b.Each {
		for _, fd := range fds {
			if _, err := unix.Write(fd, message[:]); err == nil {
				sent++
			}
		}
	}
	for heard := now(); now()-heard < quiet; {
		events, err := p.wait(100 * time.Millisecond)
		if err != nil {
			return sent, answered, err
		}
		for _, ev := range events {
			if _, err := unix.Read(fds[ev.Fd], answer[:]); err == nil {
				answered++
				heard = now()
			}
		}
	}
	return sent, answered, nil
}

// A Probe asks one service over UDP, at even intervals, who answers.
type Probe struct {
	To      netip.AddrPort
	Every   time.Duration
	Heard   chan Stamp // closed at the end
	stopped atomic.Bool
}

// A Stamp is how an endpoint answers a probe: who it is, and when it was asked.
type Stamp struct {
	Endpoint uint64
	Asked    time.Duration // since the machine has started
}

// Stop makes Run end soon. Until then the caller must read Heard.
func (p *Probe) Stop() { p.stopped.Store(true) }

// Run sends until it is stopped, and gives every answer of another endpoint than the one before to
// Heard.
func (p *Probe) Run() (err error) {
	defer try.Catch(&err)
	defer close(p.Heard)
	fd := try.Get(dial(unix.SOCK_DGRAM, p.To))
	defer unix.Close(fd)
	poller := try.Get(newPoller())
	defer poller.close()
	try.Do(poller.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, 0, 0))
	var buf [messageSize]byte
	var last uint64
	for due := now(); !p.stopped.Load(); {
		if t := now(); t >= due {
			_, _ = unix.Write(fd, buf[:]) // a refusal is told here; the next one may be accepted
			due = max(due+p.Every, t)
		}
		events := try.Get(poller.waitExactly(due - now()))
		if len(events) == 0 {
			continue
		}
		if n, err := unix.Read(fd, buf[:]); err == nil && n == messageSize {
			if s := readStamp(&buf); s.Endpoint != last {
				last = s.Endpoint
				p.Heard <- s
			}
		}
	}
	return nil
}
