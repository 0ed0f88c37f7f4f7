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
)

// How a UDP flow behaves. Datagrams may get lost, so a question that is not answered is asked again.
const (
	betweenQuestions = 100 * time.Millisecond
	askAgain         = 300 * time.Millisecond
	questionsOfFlow  = 50 // then it ends, and another begins
)

// talk keeps up one UDP flow after the other, until ctx ends.
func (c *clients) talk(ctx context.Context, services []*steady, r *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		s := services[r.IntN(len(services))]
		if err := c.flow(ctx, s, fmt.Sprintf("%d-%d", r.Int64(), n)); err != nil {
			c.fail(fmt.Errorf("%s %v: %w", s.protocol, s.name, err))
			_ = sleep(ctx, time.Second) // if it ends early, so does the loop
		}
	}
}

// flow is one socket's conversation.
func (c *clients) flow(ctx context.Context, s *steady, name string) error {
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
		c.exchanges.Add(1)
		c.check(s, who, begin, time.Now())
		if sleep(ctx, betweenQuestions) != nil {
			return nil
		}
	}
	return nil
}

// exchange asks until it is answered.
func exchange(conn net.Conn, question string) (who string, err error) {
	buf := make([]byte, 512)
	for deadline := time.Now().Add(clientPatience); time.Now().Before(deadline); {
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
			} // else it answers an earlier question, a second time
		}
	}
	return "", errors.New("no answer")
}
