//go:build linux

package hostile

import (
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A bystander is the clients of another service, who make round trips at an even pace.
type bystander struct {
	conns []net.Conn
	over  atomic.Bool
	done  sync.WaitGroup
	took  [][]time.Duration // by connection
	errs  []error
}

// How many clients a bystander is, and how often each asks.
const (
	bystanders = 4
	every      = 4 * time.Millisecond
)

// stand connects a bystander and lets it ask.
func stand(t *testing.T, addr string) *bystander {
	t.Helper()
	b := &bystander{took: make([][]time.Duration, bystanders), errs: make([]error, bystanders)}
	for range bystanders {
		conn, err := net.Dial("tcp4", addr)
		if err != nil {
			t.Fatalf("a bystander cannot connect: %v", err)
		}
		b.conns = append(b.conns, conn)
	}
	for i, conn := range b.conns {
		b.done.Go(func() {
			var message [64]byte
			for due := time.Now(); ; due = due.Add(every) {
				time.Sleep(time.Until(due))
				asked := time.Now()
				_ = conn.SetDeadline(asked.Add(5 * time.Second))
				if _, b.errs[i] = conn.Write(message[:]); b.errs[i] == nil {
					_, b.errs[i] = io.ReadFull(conn, message[:])
				}
				if b.errs[i] != nil {
					return
				}
				if b.took[i] = append(b.took[i], time.Since(asked)); b.over.Load() {
					return // at least one has been made
				}
			}
		})
	}
	return b
}

// leave ends it and gives the p99 of its round trips. None may have failed.
func (b *bystander) leave(t *testing.T) time.Duration {
	t.Helper()
	b.over.Store(true)
	b.done.Wait()
	for i, conn := range b.conns {
		conn.Close()
		if b.errs[i] != nil {
			t.Errorf("a bystander's round trip failed: %v", b.errs[i])
		}
	}
	all := slices.Concat(b.took...)
	if len(all) == 0 {
		t.Fatal("the bystander made no round trip")
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}
