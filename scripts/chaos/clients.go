package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/scripts/internal/try"
)

// clientPatience is how long a client waits. It is longer than the proxy may be paused: what is measured
// is whether clients are served, not how fast.
const clientPatience = 15 * time.Second

// The clients connect to the steady services and look at who answers. A connection that is refused or
// reset, an answer that does not come, is cut off or comes from a backend that was in no record: each is
// a failed client.
type clients struct {
	told *told
	wg   sync.WaitGroup

	answered  atomic.Int64 // connections
	exchanges atomic.Int64 // answers to datagrams
	slowest   atomic.Int64 // of all, in nanoseconds
	fail      func(error)  // takes in one failure
}

// connect opens perSecond TCP connections a second, until ctx ends. It does not wait for one before it
// opens the next.
func (c *clients) connect(ctx context.Context, services []*steady, perSecond int, r *rand.Rand) {
	const step = 10 * time.Millisecond
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	began, opened := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for due := int(time.Since(began).Seconds() * float64(perSecond)); opened < due; opened++ {
			s := services[r.IntN(len(services))]
			c.wg.Go(func() { c.judge(s, ask) })
		}
	}
}

// judge lets one client do its errand, and holds what it got against the record.
func (c *clients) judge(s *steady, errand func(addr string) (string, error)) {
	begin := time.Now()
	who, err := errand(s.addr())
	end := time.Now()
	for slowest := c.slowest.Load(); int64(end.Sub(begin)) > slowest && !c.slowest.CompareAndSwap(slowest, int64(end.Sub(begin))); {
		slowest = c.slowest.Load()
	}
	if err != nil {
		c.fail(fmt.Errorf("%s %v: %w, after %v", s.protocol, s.name, err, end.Sub(begin).Round(time.Millisecond)))
		return
	}
	c.answered.Add(1)
	c.check(s, who, begin, end)
}

// check holds who answered against the record, which reaches us by another way and may come later.
func (c *clients) check(s *steady, who string, begin, end time.Time) {
	for deadline := end.Add(clientPatience); !c.told.allowed(s.name, who, begin, end); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.fail(fmt.Errorf("%s %v: answered by %s, which was in no record between %v and %v",
				s.protocol, s.name, who, begin.Format("15:04:05.000"), end.Format("15:04:05.000")))
			return
		}
	}
}

// ask opens one connection, says something and reads until the end.
func ask(addr string) (who string, err error) {
	defer try.Catch(&err)
	const word = "who? "
	conn := try.Get(net.DialTimeout("tcp", addr, clientPatience))
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(clientPatience)) // cannot fail on an open socket
	try.Get(io.WriteString(conn, word))
	answer := try.Get(io.ReadAll(conn))
	who, ok := strings.CutPrefix(string(answer), word)
	if !ok || who == "" {
		return "", fmt.Errorf("the answer %q is cut off", answer)
	}
	return who, nil
}
