package conformancetest

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"kubeproxy/proxy/proxytest"
)

// A reset means that something is missing: who is cut off has to see it, whatever else is said at that moment.

// A side that is in the midst of a long message resets the connection, while the other one talks to it.
func (s suite) TestAResetIsNeverTakenForACleanEnd(t *testing.T) { // C5
	const atOnce = 20
	many := times(60)
	for _, way := range []struct {
		name         string
		clientResets bool
	}{{"an endpoint resets in its answer", false}, {"a client resets in its upload", true}} {
		t.Run(way.name, func(t *testing.T) {
			n := newNode(t, s.config())
			cutOff := make(chan error, atOnce) // what the side hears that is cut off
			addr := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
				if way.clientResets {
					cutOff <- talkUntilTheEnd(conn)
				} else {
					sayMuchAndReset(conn)
				}
			}))
			var clients sync.WaitGroup
			var clean, left atomic.Int64
			left.Store(int64(many))
			for range atOnce {
				clients.Go(func() {
					for left.Add(-1) >= 0 {
						conn := proxytest.Dial(t, addr)
						var err error
						if way.clientResets {
							sayMuchAndReset(conn)
							err = <-cutOff
						} else {
							err = talkUntilTheEnd(conn)
						}
						if err == nil {
							clean.Add(1)
						}
						conn.Close()
					}
				})
			}
			clients.Wait()
			if bad := clean.Load(); bad != 0 {
				t.Errorf("of %d sides that were cut off %d saw a clean end", many, bad)
			}
		})
	}
}

// sayMuchAndReset says more than small messages are, lets some of it arrive, and resets.
func sayMuchAndReset(conn *net.TCPConn) {
	_, _ = conn.Write(make([]byte, 256<<10))
	_, _ = io.ReadFull(conn, make([]byte, 1)) // the other side is talking
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// talkUntilTheEnd says a byte again and again while it reads, and returns what ends that; nil: a FIN. A write may hear of a reset before a read
// does, which then finds a FIN.
func talkUntilTheEnd(conn *net.TCPConn) error {
	reset := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		defer close(reset)
		for !isClosed(over) {
			if _, err := conn.Write([]byte("x")); err != nil {
				if errors.Is(err, syscall.ECONNRESET) {
					reset <- err
				}
				return
			}
		}
	}()
	_, err := io.Copy(io.Discard, conn)
	close(over)
	return errors.Join(err, <-reset)
}
