//go:build linux

package load

import (
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/try"
)

// A Bulk is clients that each receive as much as they are given. It counts bytes.
type Bulk struct {
	Counters
	to []netip.AddrPort
	n  int
}

// NewBulk makes n clients of these addresses.
func NewBulk(to []netip.AddrPort, n int) *Bulk { return &Bulk{to: to, n: n} }

func (l *Bulk) run(c *conductor) (err error) {
	defer try.Catch(&err)
	p := try.Get(newPoller())
	defer p.close()
	var fds []int
	defer func() {
		for _, fd := range fds {
			reset(fd)
		}
	}()
	for i := range l.n {
		fd := try.Get(dial(unix.SOCK_STREAM, l.to[i%len(l.to)]))
		fds = append(fds, fd)
		try.Do(p.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, i, 0))
		if _, err := unix.Write(fd, []byte("!")); err != nil { // the backend waits for a byte
			return fmt.Errorf("ask for bulk: %w", err)
		}
	}
	heard := now()
	for !c.stopped.Load() || l.Done.Load() == 0 { // at least until the first byte, or its absence
		events := try.Get(p.wait(100 * time.Millisecond))
		if len(events) == 0 && now()-heard > lostAfter {
			l.fail("no byte within %v", lostAfter)
			return nil
		}
		for _, ev := range events {
			heard = now()
			n, err := discard(fds[ev.Fd], 1<<20)
			switch {
			case err != nil && again(err):
			case err != nil || n == 0:
				l.fail("receiving: %d, %v", n, err)
				return nil
			default:
				l.Done.Add(uint64(n))
			}
		}
	}
	return nil
}

// discard takes up to n bytes that have arrived, without copying them anywhere: a client that is
// no bottleneck, and leaves the processor to the proxy.
func discard(fd, n int) (int, error) {
	var nowhere byte
	got, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&nowhere)), uintptr(n), unix.MSG_TRUNC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(got), nil
}
