//go:build linux

package proxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// How connections end: what was cut off looks cut off, and what was said before the end arrives.

func TestAResetByTheClientReachesTheEndpointAsAReset(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		n := newNode(t, cfg)
		accepted, ended := make(chan struct{}, 1), make(chan error, 1)
		client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
			accepted <- struct{}{}
			ended <- proxytest.Discard(conn)
		})))
		proxytest.Receive(t, accepted, "the endpoint to accept")
		proxytest.Reset(client)
		if err := proxytest.Receive(t, ended, "the endpoint to see the end"); !proxytest.IsReset(err) {
			t.Errorf("the endpoint saw %v; want a reset", err)
		}
	})
}

func TestAResetByTheEndpointReachesTheClientAsAReset(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		n := newNode(t, cfg)
		client := proxytest.Dial(t, tcpThrough(t, n, served(t, afterAByte(proxytest.Reset))))
		client.Write([]byte("?"))
		if err := proxytest.Discard(client); !proxytest.IsReset(err) {
			t.Errorf("the client saw %v; want a reset", err)
		}
	})
}

// afterAByte makes an endpoint do something once it has heard from its client. What resets a
// connection sooner may do so before the other side knows that it has one.
func afterAByte(do func(*net.TCPConn)) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		io.ReadFull(conn, make([]byte, 1))
		do(conn)
	}
}

func TestAResetByTheClientAfterItFinishedReachesTheEndpointAsAReset(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		n := newNode(t, cfg)
		finished, ended := make(chan error, 1), make(chan error, 1)
		client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
			finished <- proxytest.Discard(conn)
			chunk := make([]byte, 64<<10)
			for { // nobody will read this to its end
				if _, err := conn.Write(chunk); err != nil {
					ended <- err
					return
				}
			}
		})))
		client.CloseWrite()
		if err := proxytest.Receive(t, finished, "the endpoint to see the half-close"); err != nil {
			t.Fatalf("the endpoint saw %v; want the clean end of one direction", err)
		}
		if _, err := client.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		proxytest.Reset(client)
		if err := proxytest.Receive(t, ended, "the endpoint to see the end"); !proxytest.IsReset(err) {
			t.Errorf("the endpoint saw %v; want a reset", err)
		}
	})
}

// What was sent before a reset arrives before it: a short answer just before is what tells a client
// why.
func TestDataBeforeAResetArrivesFirst(t *testing.T) {
	lastWords := bytes.Repeat([]byte("last words "), 100)
	conform(t, func(t *testing.T, cfg proxy.Config) {
		n := newNode(t, cfg)
		heard, ended := make(chan string, 1), make(chan error, 1)
		down := tcpThrough(t, n, served(t, afterAByte(func(conn *net.TCPConn) {
			conn.Write(lastWords)
			proxytest.Reset(conn)
		})))
		up := proxytest.On(proxytest.FreePort(t))
		n.apply(service("up", tcp(up.Port())), endpoints("up", served(t, func(conn *net.TCPConn) {
			got, err := io.ReadAll(conn)
			heard <- string(got)
			ended <- err
		})))
		for range 50 {
			client := proxytest.Dial(t, down)
			client.Write([]byte("?"))
			if got, err := io.ReadAll(client); string(got) != string(lastWords) || !proxytest.IsReset(err) {
				t.Fatalf("the client got %d bytes of %d, then %v; want a reset", len(got), len(lastWords), err)
			}
			client = proxytest.Dial(t, up)
			client.Write(lastWords)
			proxytest.Reset(client)
			words, err := proxytest.Receive(t, heard, "the endpoint"), proxytest.Receive(t, ended, "the endpoint to see the end")
			if words != string(lastWords) || !proxytest.IsReset(err) {
				t.Fatalf("the endpoint got %d bytes of %d, then %v; want a reset", len(words), len(lastWords), err)
			}
		}
	})
}

// A server that answers before it has read the whole request, and closes, makes its kernel send a
// reset. The proxy learns of it while it is still writing the rest of the request: it must deliver
// the answer all the same.
func TestAnAnswerSurvivesAServerThatClosesWithUnreadInput(t *testing.T) {
	answer := bytes.Repeat([]byte("413 too large. "), 500)
	conform(t, func(t *testing.T, cfg proxy.Config) {
		n := newNode(t, cfg)
		addr := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
			io.ReadFull(conn, make([]byte, 10))
			conn.Write(answer)
		}))
		for i := range 50 {
			client := proxytest.Dial(t, addr)
			var sending sync.WaitGroup
			sending.Go(func() { // more than the server will ever read, until it is stopped
				chunk := make([]byte, 8<<10)
				for range 100 {
					if _, err := client.Write(chunk); err != nil {
						return
					}
				}
			})
			got, err := io.ReadAll(client)
			if !bytes.Equal(got, answer) {
				t.Fatalf("client %d got %d bytes of %d, then %v", i, len(got), len(answer), err)
			}
			client.Close()
			sending.Wait()
		}
	})
}

// The worst case of an early close: the server has answered everything and gone with a reset, while
// most of the answer is still on its way to a client that reads slowly and goes on sending what
// nobody will read.
func TestTheTailOfALargeAnswerReachesASlowClientThatKeepsSending(t *testing.T) {
	answer := proxytest.Stream{Seed: 3, Size: 512 << 10}
	for _, finishes := range []bool{true, false} {
		name := "the server finished before it went"
		if !finishes {
			name = "the server just went"
		}
		t.Run(name, func(t *testing.T) {
			conform(t, func(t *testing.T, cfg proxy.Config) {
				n := newNode(t, cfg)
				gone := make(chan error, 1)
				client := proxytest.DialNarrow(t, tcpThrough(t, n, served(t, afterAByte(func(conn *net.TCPConn) {
					err := answer.SendTo(conn)
					if finishes {
						err = errors.Join(err, conn.CloseWrite())
					}
					gone <- errors.Join(err, taken(conn)) // and the connection is closed, with unread input
				}))), 8<<10)
				cut := keepSending(client)
				got, err := slowly(client)
				client.Close()
				// The kernel tells of a reset once, to the reader or to the writer. (And a writer who
				// had the end before the reset gets EPIPE.)
				if wasCut := <-cut; errors.Is(wasCut, syscall.ECONNRESET) {
					err = wasCut
				}
				if finishes && err != nil || !finishes && !proxytest.IsReset(err) || got != answer.Size {
					t.Errorf("the client got %d bytes of %d, and then %v", got, answer.Size, err)
				}
				if err := proxytest.Receive(t, gone, "the server"); err != nil {
					t.Errorf("server: %v", err)
				}
			})
		})
	}
}

// What is on its way to a slow reader when the other side resets its connection is delivered, and
// then the reset.
func TestAResetDoesNotOvertakeDataOnItsWayToASlowReader(t *testing.T) {
	stream := proxytest.Stream{Seed: 4, Size: 256 << 10}
	conform(t, func(t *testing.T, cfg proxy.Config) {
		n := newNode(t, cfg)
		sendAndReset := func(conn *net.TCPConn) error {
			err := errors.Join(stream.SendTo(conn), taken(conn))
			proxytest.Reset(conn)
			return err
		}
		check := func(who string, got int, err error) {
			t.Helper()
			if got != stream.Size || !proxytest.IsReset(err) {
				t.Errorf("the %s got %d bytes of %d, and then %v; want a reset", who, got, stream.Size, err)
			}
		}
		sent := make(chan error, 1)
		client := proxytest.DialNarrow(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) { sent <- sendAndReset(conn) })), 8<<10)
		got, err := slowly(client)
		check("client", got, err)
		if err := proxytest.Receive(t, sent, "the endpoint"); err != nil {
			t.Errorf("endpoint: %v", err)
		}

		type end struct {
			got int
			err error
		}
		received := make(chan end, 1)
		other := proxytest.On(proxytest.FreePort(t))
		n.apply(service("narrow", tcp(other.Port())), endpoints("narrow", proxytest.ServeNarrow(t, "127.0.0.1:0", 8<<10, func(conn *net.TCPConn) {
			got, err := slowly(conn)
			received <- end{got, err}
		}).Addr))
		if err := sendAndReset(proxytest.Dial(t, other)); err != nil {
			t.Errorf("client: %v", err)
		}
		e := proxytest.Receive(t, received, "the endpoint")
		check("endpoint", e.got, e.err)
	})
}

// keepSending writes to a connection until that fails, and then tells how.
func keepSending(conn *net.TCPConn) <-chan error {
	ended := make(chan error, 1)
	go func() {
		chunk := make([]byte, 1<<10)
		for {
			if _, err := conn.Write(chunk); err != nil {
				ended <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return ended
}

// A server that has finished is silent, but its answer is not, for as long as the client is reading
// it: the time that a half-closed connection may be silent does not cut it short.
func TestAReaderSlowerThanTheHalfClosedTimeoutGetsAll(t *testing.T) {
	answer := proxytest.Stream{Seed: 5, Size: 512 << 10}
	conform(t, func(t *testing.T, cfg proxy.Config) {
		cfg.HalfClosedTimeout = time.Second
		n := newNode(t, cfg)
		client := proxytest.DialNarrow(t, tcpThrough(t, n, served(t, afterAByte(func(conn *net.TCPConn) {
			answer.SendTo(conn)
			conn.CloseWrite()
			taken(conn)
		}))), 8<<10)
		ended := keepSending(client)
		got := 0
		start := time.Now()
		for buf := make([]byte, 4<<10); ; time.Sleep(20 * time.Millisecond) {
			m, err := client.Read(buf)
			if got += m; err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("after %v the client had %d bytes of %d, and then %v", time.Since(start), got, answer.Size, err)
			}
		}
		if got != answer.Size || time.Since(start) < 2*cfg.HalfClosedTimeout {
			t.Errorf("the client got %d bytes of %d in %v", got, answer.Size, time.Since(start))
		}
		client.Close()
		<-ended
	})
}

// The same for a client that has sent all and finished, and whose endpoint reads slowly before it answers.
func TestAnEndpointSlowerThanTheHalfClosedTimeoutGetsAll(t *testing.T) {
	upload := proxytest.Stream{Seed: 7, Size: 256 << 10}
	conform(t, func(t *testing.T, cfg proxy.Config) {
		cfg.HalfClosedTimeout = time.Second
		n := newNode(t, cfg)
		type end struct {
			got  int
			err  error
			took time.Duration
		}
		received := make(chan end, 1)
		client := proxytest.Dial(t, tcpThrough(t, n, proxytest.ServeNarrow(t, "127.0.0.1:0", 8<<10, func(conn *net.TCPConn) {
			start := time.Now()
			for got, buf := 0, make([]byte, 4<<10); ; time.Sleep(40 * time.Millisecond) {
				m, err := conn.Read(buf)
				if got += m; err != nil {
					received <- end{got, err, time.Since(start)}
					io.WriteString(conn, "got it")
					return
				}
			}
		}).Addr))
		if err := errors.Join(upload.SendTo(client), client.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		e := proxytest.Receive(t, received, "the endpoint to read all")
		if e.got != upload.Size || e.err != io.EOF || e.took < 2*cfg.HalfClosedTimeout {
			t.Errorf("the endpoint got %d bytes of %d in %v, and then %v", e.got, upload.Size, e.took, e.err)
		}
		if answer, err := io.ReadAll(client); string(answer) != "got it" || err != nil {
			t.Errorf("the client got %q, %v; want the answer", answer, err)
		}
	})
}

// What a reset must not overtake is not waited for without end: a reader that does not read at all has had
// its time when it has been half-closed for as long as it may be silent.
func TestAResetDoesNotWaitForAReaderThatDoesNotRead(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		cfg.HalfClosedTimeout = 200 * time.Millisecond
		n := newNode(t, cfg)
		client := proxytest.DialNarrow(t, tcpThrough(t, n, served(t, afterAByte(func(conn *net.TCPConn) {
			proxytest.Stream{Seed: 8, Size: 256 << 10}.SendTo(conn)
			taken(conn)
			proxytest.Reset(conn)
		}))), 8<<10)
		client.Write([]byte("?"))
		proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.EndpointReset] == 1 }, "the connection's end")
	})
}

// taken waits until the proxy's kernel has everything that was written.
func taken(conn *net.TCPConn) error {
	var left int
	var err error
	if !proxytest.Becomes(func() bool { left, err = proxytest.Unsent(conn); return left == 0 || err != nil }) {
		return fmt.Errorf("the proxy did not take the last %d bytes", left)
	}
	return err
}

// slowly reads to the end, and returns how much there was and how it ended: nil for a clean end.
func slowly(conn *net.TCPConn) (got int, err error) {
	for buf := make([]byte, 16<<10); ; time.Sleep(2 * time.Millisecond) {
		n, err := conn.Read(buf)
		got += n
		if err == io.EOF {
			return got, nil
		} else if err != nil {
			return got, err
		}
	}
}

// A client that has what it wanted may close without reading the rest: that is its right, and the
// server hears of it.
func TestAClientThatLeavesEarlyStopsTheServer(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		n := newNode(t, cfg)
		ended := make(chan error, 1)
		client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
			chunk := make([]byte, 64<<10)
			for {
				if _, err := conn.Write(chunk); err != nil {
					ended <- err
					return
				}
			}
		})))
		if _, err := io.ReadFull(client, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		client.Close()
		if err := proxytest.Receive(t, ended, "the server to be stopped"); !proxytest.IsReset(err) {
			t.Errorf("the server saw %v; want a reset", err)
		}
	})
}

// A peer that vanishes says nothing: no end, no reset. Keepalive finds out. But its probes are not
// sent while there is data that has not been acknowledged (tcp(7)), and the kernel would go on
// sending that again for a quarter of an hour: that must end the relay as soon.
func TestAPeerThatVanishesEndsTheRelay(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		if !proxytest.InOwnNetwork(t) {
			return
		}
		cfg.BindAddress = netip.IPv4Unspecified()
		cfg.TCPKeepAlive = time.Second // the shortest that the kernel knows
		cfg.HalfClosedTimeout = time.Second
		n := newNode(t, cfg)
		peer := proxytest.NewPeer(t)

		// Clients there of an endpoint here.
		accepted, hold := make(chan *net.TCPConn, 1), make(chan struct{})
		defer close(hold)
		addr := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
			accepted <- conn
			<-hold
		}))
		clientThere := func() (endpointHere *net.TCPConn) {
			peer.Do(t, func() error {
				client, err := net.Dial("tcp", netip.AddrPortFrom(peer.Here, addr.Port()).String())
				if err == nil {
					t.Cleanup(func() { client.Close() })
				}
				return err
			})
			return proxytest.Receive(t, accepted, "the endpoint here to accept")
		}

		// Clients here of an endpoint there.
		var listener *net.TCPListener
		peer.Do(t, func() (err error) {
			listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: peer.There.AsSlice()})
			return err
		})
		defer listener.Close()
		other := proxytest.On(proxytest.FreePort(t))
		n.apply(service("there", tcp(other.Port())), endpoints("there", proxytest.At(listener.Addr().(*net.TCPAddr).AddrPort())))
		endpointThere := func() (clientHere *net.TCPConn) {
			clientHere = proxytest.Dial(t, other)
			endpoint, err := listener.AcceptTCP()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { endpoint.Close() })
			return clientHere
		}

		partners := []struct {
			of     string
			conn   *net.TCPConn
			speaks bool
		}{
			{"an idle client", clientThere(), false},
			{"a client that is being sent something", clientThere(), true},
			{"an idle endpoint", endpointThere(), false},
			{"an endpoint that is being sent something", endpointThere(), true},
		}
		relaying := proxytest.Sockets(t)
		peer.Vanish(t)
		for _, partner := range partners {
			if partner.speaks {
				partner.conn.Write([]byte("lost"))
			}
		}
		for _, partner := range partners {
			if err := proxytest.Discard(partner.conn); !proxytest.IsReset(err) {
				t.Errorf("the partner of %s that vanished saw %v; want a reset", partner.of, err)
			}
		}
		proxytest.Eventually(t, func() bool { return proxytest.Sockets(t) == relaying-2*len(partners) }, "both sockets of each relay closed")
		// Nor does the kernel go on for minutes with what we closed.
		gone := fmt.Sprintf(" %08X:", binary.NativeEndian.Uint32(peer.There.AsSlice()))
		runtime.LockOSThread() // one that is of this network
		defer runtime.UnlockOSThread()
		proxytest.Eventually(t, func() bool {
			connections, err := os.ReadFile("/proc/thread-self/net/tcp")
			return err == nil && !strings.Contains(string(connections), gone)
		}, "no connection to the peer left in the kernel")
	})
}
