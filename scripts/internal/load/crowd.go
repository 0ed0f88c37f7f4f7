//go:build linux

package load

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// A Crowd is connections that are held open and do nothing.
type Crowd struct{ fds []int }

// Grow opens connections until there are n. Each makes one round trip first, so that it has reached a
// backend.
func (c *Crowd) Grow(ctx context.Context, to []netip.AddrPort, n int) error {
	var buf [messageSize]byte
	for len(c.fds) < n && ctx.Err() == nil {
		fd, err := dial(unix.SOCK_STREAM, to[len(c.fds)%len(to)])
		if err != nil {
			return fmt.Errorf("connection %d: %w", len(c.fds)+1, err)
		}
		c.fds = append(c.fds, fd)
		if _, err := unix.Write(fd, buf[:]); err != nil {
			return fmt.Errorf("connection %d: %w", len(c.fds), err)
		}
		for got := 0; got < messageSize; {
			ready, err := await(fd, unix.POLLIN, dialTimeout)
			if err != nil || !ready {
				return fmt.Errorf("connection %d: no answer within %v (%v)", len(c.fds), dialTimeout, err)
			}
			k, err := unix.Read(fd, buf[:])
			if err != nil && !again(err) || k == 0 {
				return fmt.Errorf("connection %d: %d bytes, %v", len(c.fds), k, err)
			}
			got += max(k, 0)
		}
	}
	return context.Cause(ctx)
}

// Disperse resets them all.
func (c *Crowd) Disperse() {
	for _, fd := range c.fds {
		reset(fd)
	}
	c.fds = nil
}
