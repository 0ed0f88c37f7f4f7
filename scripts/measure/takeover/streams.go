//go:build linux

package takeover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// A kind is what the two sides of a held connection do.
type kind struct {
	name   string
	of4000 int // how many of 4,000 connections are of this kind
	client part
	server part
	steady bool // the backend echoes, and the client measures round trips
}

// A part is what one side says. At the end of the load it says a chunk more, and half-closes.
type part struct {
	first  int           // bytes that it says at once
	every  time.Duration // after which it says a chunk of bytes again; zero: it is silent until the end
	chunk  int
	closes bool // it half-closes after its first bytes
	unread bool // the other side reads nothing until the end
}

var (
	silent   = part{chunk: 1 << 10}
	trickle  = part{first: 1 << 10, every: 500 * time.Millisecond, chunk: 1 << 10}
	bulk     = part{every: 500 * time.Millisecond, chunk: 16 << 10}
	fast     = part{every: 50 * time.Millisecond, chunk: 256 << 10}
	finished = part{first: 1 << 10, closes: true}
	stalled  = part{first: 512 << 10, chunk: 1 << 10, unread: true}
)

// unreadBuffer bounds what the kernel takes for one who does not read. It is more than a segment of the loopback interface has (64 KiB):
// with less the kernel reports free room only when the other side probes for it, which can be after a minute.
const unreadBuffer = 128 << 10

// kinds begins with what is not left out when there are few connections.
var kinds = []kind{
	{name: "steady", of4000: 100, steady: true},
	{name: "fast both ways", of4000: 8, client: fast, server: fast},
	{name: "bulk both ways", of4000: 992, client: bulk, server: bulk},
	{name: "half-closed by the client", of4000: 500, client: finished, server: trickle},
	{name: "half-closed by the backend", of4000: 500, client: trickle, server: finished},
	{name: "stalled client", of4000: 400, client: silent, server: stalled},
	{name: "stalled backend", of4000: 400, client: stalled, server: silent},
	{name: "idle", of4000: 1100, client: silent, server: silent},
}

// countOf returns how many of n connections are of a kind.
func (k *kind) countOf(n int) int { return max(1, n*k.of4000/4000) }

// patternPeriod is a prime, so that no common size of buffer is a multiple of it.
const patternPeriod = 65521

// pattern is random bytes that repeat. Every stream is a walk through them, from a place of its own.
var pattern = func() []byte {
	b := make([]byte, patternPeriod)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	for len(b) < patternPeriod+maxChunk {
		b = append(b, b[:patternPeriod]...)
	}
	return b
}()

// maxChunk is the most that expect returns at a time.
const maxChunk = 256 << 10

// A stream is one direction of a connection. One goroutine writes it and another one reads it.
type stream struct {
	start          int
	sent, received int64
}

// expect returns the n bytes of the stream at an offset.
func (s *stream) expect(offset int64, n int) []byte {
	from := (int64(s.start) + offset) % patternPeriod
	return pattern[from : from+int64(n)]
}

func (s *stream) say(conn net.Conn, n int) error {
	for n > 0 {
		some := min(n, maxChunk)
		written, err := conn.Write(s.expect(s.sent, some))
		s.sent += int64(written)
		if err != nil {
			return err
		}
		n -= some
	}
	return nil
}

// write says a part until ctx ends, and then half-closes.
func (s *stream) write(ctx context.Context, conn *net.TCPConn, p part) error {
	if err := s.say(conn, p.first); err != nil {
		return err
	}
	if p.closes {
		return conn.CloseWrite()
	}
	var tick <-chan time.Time
	if p.every > 0 {
		// Not all at once.
		if err := pause(ctx, rand.N(p.every)); err == nil {
			ticker := time.NewTicker(p.every)
			defer ticker.Stop()
			tick = ticker.C
		}
	}
	for {
		select {
		case <-tick:
			if err := s.say(conn, p.chunk); err != nil {
				return err
			}
		case <-ctx.Done():
			if err := s.say(conn, p.chunk); err != nil {
				return err
			}
			return conn.CloseWrite()
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errWrongBytes = errors.New("wrong bytes")

// read compares what comes with what was said, until its end.
func (s *stream) read(ctx context.Context, conn *net.TCPConn, p part) error {
	if p.unread {
		<-ctx.Done()
	}
	for buf := make([]byte, 16<<10); ; {
		n, err := conn.Read(buf)
		if !bytes.Equal(buf[:n], s.expect(s.received, n)) {
			return fmt.Errorf("%w within %d bytes after %d", errWrongBytes, n, s.received)
		}
		s.received += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// A connection is one that is held, with both its ends here.
type connection struct {
	id       uint32
	kind     *kind
	up, down stream
}
