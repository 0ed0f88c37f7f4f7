package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"kubeproxy/internal/backoff"
)

// How a UDP client behaves. Datagrams may get lost, so it repeats a question that is not answered.
const (
	betweenQuestions = 100 * time.Millisecond
	askAgain         = 300 * time.Millisecond
	questionsOfFlow  = 50 // then another client begins
)

// talk runs one UDP client after the other, until ctx ends.
func (c *clients) talk(ctx context.Context, services []*service, r *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		s := services[r.IntN(len(services))]
		if err := c.flow(ctx, s, fmt.Sprintf("%d-%d", r.Int64(), n)); err != nil {
			c.Fail(fmt.Errorf("%s %v: %w", s.protocol, s.name, err))
			backoff.Sleep(ctx, time.Second)
		}
	}
}

// flow sends the questions of one UDP client.
func (c *clients) flow(ctx context.Context, s *service, name string) error {
	conn, err := net.Dial("udp", s.addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	for n := range questionsOfFlow {
		question := fmt.Sprintf("%s/%d ", name, n)
		begin := time.Now()
		who, err := exchange(conn, question)
		if err != nil {
			return fmt.Errorf("%w, after %v", err, time.Since(begin).Round(time.Millisecond))
		}
		c.Exchanges.Add(1)
		c.check(s, who, begin, time.Now())
		if backoff.Sleep(ctx, betweenQuestions); ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// exchange repeats a question until it is answered.
func exchange(conn net.Conn, question string) (who string, err error) {
	buf := make([]byte, 512)
	for deadline := time.Now().Add(clientTimeout); time.Now().Before(deadline); {
		if _, err := conn.Write([]byte(question)); err != nil {
			return "", err
		}
		_ = conn.SetReadDeadline(time.Now().Add(askAgain)) // cannot fail on an open socket
		for {
			n, err := conn.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return "", err
			}
			if who, ok := strings.CutPrefix(string(buf[:n]), question); ok {
				return who, nil
			} // else it is a second answer to an earlier question
		}
	}
	return "", errors.New("no answer")
}
