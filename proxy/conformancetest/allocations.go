package conformancetest

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
)

// What carries a byte or a datagram allocates nothing: garbage would be collected at the cost of every client's
// latency, and in proportion to what strangers send.

// allocations returns how often this process allocates for each of so many calls of f, on all its goroutines, once
// it is used to f. What timers of the process allocate by the second is taken off: a busy machine makes the calls
// last. (testing.AllocsPerRun rounds down: it does not see what happens in every batch.)
func allocations(calls int, f func()) float64 {
	for range calls / 10 {
		f()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	for range calls {
		f()
	}
	byTime := uint64(time.Since(begun) / (100 * time.Millisecond))
	runtime.ReadMemStats(&after)
	mallocs := after.Mallocs - before.Mallocs
	return float64(mallocs-min(byTime, mallocs)) / float64(calls)
}

// fewAllocations is what timers and the runtime may allocate meanwhile for each call in which so many clients
// ask: goroutines that meet at a lock take some now and then. One for each batch is more than that.
func fewAllocations(clients int) float64 {
	if poolsLose { // those of package net: then one for each datagram has to be more than that
		return 0.9 * float64(clients)
	}
	return 0.5
}

// echoChunks sends back what comes, and allocates nothing for it.
func echoChunks(conn *net.TCPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A chunk that passes through our memory, one that fills many buffers, and bulk, which on Linux may go
// by splice: much more than the sockets hold, so that each side also has to wait for the other.
func (s suite) TestARelayedChunkAllocatesNothing(t *testing.T) {
	for _, c := range []struct{ size, times int }{{64, 1000}, {100_000, 1000}, {4 << 20, 100}} {
		t.Run(fmt.Sprintf("%d bytes", c.size), func(t *testing.T) {
			cfg := s.config()
			n := newNode(t, cfg)
			client := proxytest.Dial(t, tcpThrough(t, n, served(t, echoChunks)))
			client.SetDeadline(time.Now().Add(2 * proxytest.Patience))
			question, answer := make([]byte, c.size), make([]byte, c.size)
			ask, asked := make(chan struct{}), make(chan error)
			go func() {
				defer close(asked)
				for range ask {
					_, err := client.Write(question)
					asked <- err
				}
			}()
			defer func() {
				close(ask)
				<-asked
			}()
			roundTrip := func() {
				ask <- struct{}{}
				_, err := io.ReadFull(client, answer)
				if werr := <-asked; err != nil || werr != nil {
					t.Fatalf("reading the answer: %v; writing the question: %v", err, werr)
				}
			}
			if n := allocations(c.times, roundTrip); n > fewAllocations(1) {
				t.Errorf("%v allocations for %d bytes there and back; want none", n, c.size)
			}
		})
	}
}

// One client's datagrams of any length; and those of many clients, which may be carried in one batch.
func (s suite) TestADatagramAllocatesNothing(t *testing.T) {
	for _, bind := range []string{"127.0.0.1", "0.0.0.0", "::1"} {
		for _, c := range []struct{ clients, length int }{{1, 0}, {1, 64}, {1, 1400}, {1, 60_000}, {32, 64}} {
			t.Run(fmt.Sprintf("bound to %s, %d clients, %d bytes", bind, c.clients, c.length), func(t *testing.T) {
				cfg := s.config()
				cfg.BindAddress = netip.MustParseAddr(bind)
				n := newNode(t, cfg)
				to := udpThrough(t, n, proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr)
				if bind == "::1" {
					to = netip.AddrPortFrom(cfg.BindAddress, to.Port())
				}
				var clients []*net.UDPConn
				for range c.clients {
					client := proxytest.DialUDP(t, to).UDPConn
					client.SetDeadline(time.Now().Add(2 * proxytest.Patience))
					clients = append(clients, client)
				}
				buf := make([]byte, c.length)
				roundTrip := func() {
					for _, client := range clients {
						if _, err := client.Write(buf); err != nil {
							t.Fatal(err)
						}
					}
					for _, client := range clients {
						if n, err := client.Read(buf); err != nil || n != len(buf) {
							t.Fatalf("%d bytes came back, %v", n, err)
						}
					}
				}
				if n := allocations(max(1000/c.clients, 250), roundTrip); n > fewAllocations(c.clients) {
					t.Errorf("%v allocations for a datagram of each client and its answer; want none", n)
				}
			})
		}
	}
}
