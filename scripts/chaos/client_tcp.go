package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"kubeproxy/scripts/internal/try"
)

// connect opens perSecond TCP connections a second, until ctx ends. It does not wait for one before it opens the next.
func (c *clients) connect(ctx context.Context, services []*service, perSecond int, r *rand.Rand) {
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
			c.wg.Go(func() { c.visit(s) })
		}
	}
}

// visit runs one TCP client, and checks its answer.
func (c *clients) visit(s *service) {
	begin := time.Now()
	who, err := ask(s.addr())
	end := time.Now()
	for slowest := c.slowest.Load(); int64(end.Sub(begin)) > slowest && !c.slowest.CompareAndSwap(slowest, int64(end.Sub(begin))); {
		slowest = c.slowest.Load()
	}
	if err != nil {
		c.Fail(fmt.Errorf("%s %v: %w, after %v", s.protocol, s.name, err, end.Sub(begin).Round(time.Millisecond)))
		return
	}
	c.Answered.Add(1)
	c.check(s, who, begin, end)
}

// ask opens one connection, sends a word and reads until the end.
func ask(addr string) (who string, err error) {
	defer try.Catch(&err)
	const word = "who? "
	conn := try.Get(net.DialTimeout("tcp", addr, clientTimeout))
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(clientTimeout)) // cannot fail on an open socket
	try.Get(io.WriteString(conn, word))
	answer := try.Get(io.ReadAll(conn))
	who, ok := strings.CutPrefix(string(answer), word)
	if !ok || who == "" {
		return "", fmt.Errorf("the answer %q is cut off", answer)
	}
	return who, nil
}
