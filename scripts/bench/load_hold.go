//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// A crowd is connections that are held open and do nothing.
type crowd struct{ fds []int }

// grow opens connections until there are n. Each makes one round trip first, so that it has reached a
// backend.
func (c *crowd) grow(ctx context.Context, to []netip.AddrPort, n int) error {
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

func (c *crowd) disperse() {
	for _, fd := range c.fds {
		reset(fd)
	}
	c.fds = nil
}

// settle waits until a figure stays the same for a while, and gives it: collectors of garbage and
// closers of descriptors come later. It waits limit at most.
func settle(ctx context.Context, limit time.Duration, read func() (float64, error)) (float64, error) {
	last, err := read()
	for same, deadline := 0, time.Now().Add(limit); err == nil && same < 5 && time.Now().Before(deadline); {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		var figure float64
		if figure, err = read(); figure == last {
			same++
		} else {
			same, last = 0, figure
		}
	}
	return last, err
}
