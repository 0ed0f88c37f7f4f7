package conformancetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// A peer that vanishes says nothing: no end, no reset. Keepalive finds out. But its probes are not
// sent while there is data that has not been acknowledged (tcp(7)), and the kernel would go on
// sending that again for a quarter of an hour: that must end the relay as soon.
func (s suite) TestAPeerThatVanishesEndsTheRelay(t *testing.T) {
	cfg := s.config()
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
}

// Its end is behind what it has said and its endpoint does not take, so nothing reads from it any more.
func (s suite) TestAPeerThatVanishesWhileItsPartnerReadsNothingEndsTheRelay(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	cfg.BindAddress = netip.IPv4Unspecified()
	cfg.TCPKeepAlive, cfg.HalfClosedTimeout = time.Second, time.Second
	n, peer := newNode(t, cfg), proxytest.NewPeer(t)
	fill := func(conn net.Conn) { // all buffers
		for err := error(nil); err == nil; {
			conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
			_, err = conn.Write(make([]byte, 64<<10))
		}
	}
	vanished, hold := make(chan struct{}), make(chan struct{})
	defer close(hold)
	addr := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		<-vanished
		fill(conn)
		<-hold
	}))
	peer.Do(t, func() error {
		client, err := net.Dial("tcp", netip.AddrPortFrom(peer.Here, addr.Port()).String())
		if err == nil {
			t.Cleanup(func() { client.Close() })
			fill(client)
		}
		return err
	})
	peer.Vanish(t)
	close(vanished)
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.ClientVanished] == 1 }, "the connection's end")
}

// What a reset must not overtake is not waited for without end: a reader that does not read at all has had
// its time when it has been half-closed for as long as it may be silent.
func (s suite) TestAResetDoesNotWaitForAReaderThatDoesNotRead(t *testing.T) {
	cfg := s.config()
	cfg.HalfClosedTimeout = 200 * time.Millisecond
	n := newNode(t, cfg)
	client := proxytest.DialNarrow(t, tcpThrough(t, n, served(t, afterAByte(func(conn *net.TCPConn) {
		proxytest.Stream{Seed: 8, Size: 256 << 10}.SendTo(conn)
		taken(conn)
		proxytest.Reset(conn)
	}))), 8<<10)
	client.Write([]byte("?"))
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.EndpointReset] == 1 }, "the connection's end")
}

// TestASideThatDiesBehindAnotherThatTakesNothingEndsTheConnection: its end is behind what the other side does not read. Nothing limits how long a connection
// of two live sides may stand still.
func (s suite) TestASideThatDiesBehindAnotherThatTakesNothingEndsTheConnection(t *testing.T) {
	for _, endpointDies := range []bool{false, true} {
		cfg := s.config()
		cfg.TCPKeepAlive, cfg.HalfClosedTimeout, cfg.IdleTimeout = 200*time.Millisecond, 200*time.Millisecond, time.Hour
		n, ended := newNode(t, cfg), make(chan struct{})
		flood := func(conn *net.TCPConn) {
			for err := error(nil); err == nil; { // until all buffers are full
				conn.SetWriteDeadline(time.Now().Add(time.Second))
				_, err = conn.Write(make([]byte, 64<<10))
			}
			proxytest.Reset(conn)
		}
		at := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
			if endpointDies {
				flood(conn)
			} else {
				<-ended
			}
		}))
		t.Cleanup(func() { close(ended) })
		client := proxytest.Dial(t, at)
		if !endpointDies {
			flood(client)
		}
		proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.HalfClosedTimeout] == 1 }, "the connection's end, endpoint dies: %v", endpointDies)
	}
}

// The worst case of an early close: the server has answered everything and gone with a reset, while
// most of the answer is still on its way to a client that reads slowly and goes on sending what
// the other side will not read.
func (s suite) TestTheTailOfALargeAnswerReachesASlowClientThatKeepsSending(t *testing.T) {
	answer := proxytest.Stream{Seed: 3, Size: 512 << 10}
	for _, finishes := range []bool{true, false} {
		name := "the server finished before it went"
		if !finishes {
			name = "the server just went"
		}
		t.Run(name, func(t *testing.T) {
			cfg := s.config()
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
			if wasCut := <-cut; proxytest.IsReset(wasCut) {
				err = wasCut
			}
			if finishes && err != nil || !finishes && !proxytest.IsReset(err) || got != answer.Size {
				t.Errorf("the client got %d bytes of %d, and then %v", got, answer.Size, err)
			}
			if err := proxytest.Receive(t, gone, "the server"); err != nil {
				t.Errorf("server: %v", err)
			}
		})
	}
}

// An endpoint goes in the middle of an upload in bulk. A call that moves bulk makes several writes, and of a reset that the second one finds it
// says nothing: it has moved the bytes of the first.
func (s suite) TestAResetInTheMiddleOfBulkIsNeverTakenForACleanEnd(t *testing.T) {
	for _, finishes := range []bool{true, false} {
		name := "the endpoint finished before it went"
		if !finishes {
			name = "the endpoint just went"
		}
		t.Run(name, func(t *testing.T) {
			addr := tcpThrough(t, newNode(t, s.config()), served(t, func(conn *net.TCPConn) {
				if _, err := io.CopyN(io.Discard, conn, 500<<10); err != nil {
					return
				}
				if finishes {
					_ = errors.Join(conn.CloseWrite(), taken(conn)) // what fails here is seen by the client
				}
				proxytest.Reset(conn)
			}))
			const clients = 20
			for range 10 {
				ends := make(chan error, clients)
				for range clients {
					client := proxytest.Dial(t, addr)
					go func() {
						defer client.Close()
						for range 500 {
							if _, err := client.Write(make([]byte, 2<<10)); err != nil {
								if !errors.Is(err, syscall.EPIPE) { // it has taken the reset; EPIPE comes behind a FIN
									ends <- err
									return
								}
								break
							}
						}
						ends <- proxytest.Discard(client)
					}()
				}
				for range clients {
					if err := proxytest.Receive(t, ends, "the end of a client"); finishes && err != nil || !finishes && !proxytest.IsReset(err) {
						t.Fatalf("a client saw %v", err)
					}
				}
			}
		})
	}
}

// What is on its way to a slow reader when the other side resets its connection is delivered, and
// then the reset.
func (s suite) TestAResetDoesNotOvertakeDataOnItsWayToASlowReader(t *testing.T) {
	stream := proxytest.Stream{Seed: 4, Size: 256 << 10}
	cfg := s.config()
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
}

// A server that has finished is silent, but its answer is not, for as long as the client is reading
// it: the time that a half-closed connection may be silent does not cut it short.
func (s suite) TestAReaderSlowerThanTheHalfClosedTimeoutGetsAll(t *testing.T) {
	answer := proxytest.Stream{Seed: 5, Size: 512 << 10}
	cfg := s.config()
	cfg.HalfClosedTimeout = time.Second
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, served(t, afterAByte(func(conn *net.TCPConn) {
		answer.SendTo(conn)
		conn.CloseWrite()
		taken(conn)
	})))
	proxytest.Punctually(t, cfg.HalfClosedTimeout/2, func(beat func()) error {
		client := proxytest.DialNarrow(t, addr, 8<<10)
		ended := keepSending(client)
		defer func() { client.Close(); <-ended }()
		got := 0
		start := time.Now()
		for buf := make([]byte, 4<<10); ; time.Sleep(20 * time.Millisecond) {
			beat()
			m, err := client.Read(buf)
			if got += m; err == io.EOF {
				break
			} else if err != nil {
				return fmt.Errorf("after %v the client had %d bytes of %d, and then %w", time.Since(start), got, answer.Size, err)
			}
		}
		if took := time.Since(start); got != answer.Size || took < 2*cfg.HalfClosedTimeout {
			return fmt.Errorf("the client got %d bytes of %d in %v", got, answer.Size, took)
		}
		return nil
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
