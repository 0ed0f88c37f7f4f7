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
	took  [][]time.Duration // by connection; the last is of connections made anew
	errs  []error
}

// How many clients a bystander is, and how often each asks.
const (
	bystanders = 4
	every      = 4 * time.Millisecond
	anew       = 25 * time.Millisecond // how often it connects anew, if it does
	patience   = 5 * time.Second       // for one round trip
)

// stand connects a bystander and lets it ask.
func stand(t *testing.T, addr string) *bystander {
	t.Helper()
	b := &bystander{took: make([][]time.Duration, bystanders+1), errs: make([]error, bystanders+1)}
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
				_ = conn.SetDeadline(asked.Add(patience))
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

// connectAnew also makes a connection for one round trip at an even pace. Its time counts from the connect.
func (b *bystander) connectAnew(addr string) {
	b.done.Go(func() {
		for due := time.Now(); !b.over.Load(); due = due.Add(anew) {
			time.Sleep(time.Until(due))
			asked := time.Now()
			if b.errs[bystanders] = roundTrip(addr, patience); b.errs[bystanders] != nil {
				return
			}
			b.took[bystanders] = append(b.took[bystanders], time.Since(asked))
		}
	})
}

// roundTrip connects, sends a few bytes, waits for their echo, and resets the connection.
func roundTrip(addr string, within time.Duration) error {
	conn, err := net.DialTimeout("tcp4", addr, within)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.SetDeadline(time.Now().Add(within))
	message := []byte("hello")
	if _, err = conn.Write(message); err == nil {
		_, err = io.ReadFull(conn, message)
	}
	return err
}

// leave ends it and gives the p99 of its round trips. None may have failed.
func (b *bystander) leave(t *testing.T) time.Duration {
	t.Helper()
	b.over.Store(true)
	b.done.Wait()
	for _, conn := range b.conns {
		conn.Close()
	}
	for _, err := range b.errs {
		if err != nil {
			t.Errorf("a bystander's round trip failed: %v", err)
		}
	}
	all := slices.Concat(b.took...)
	if len(all) == 0 {
		t.Fatal("the bystander made no round trip")
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}
