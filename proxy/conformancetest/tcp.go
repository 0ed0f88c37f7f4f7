package conformancetest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// What a stream owes to both of its ends: every byte, in order, each direction for itself.

const mib = 1 << 20

var (
	request  = proxytest.Stream{Seed: 1, Size: 8 * mib}
	response = proxytest.Stream{Seed: 2, Size: 8 * mib}
)

func (s suite) TestHalfCloseByTheClientKeepsTheAnswerFlowing(t *testing.T) { // D39
	cfg := s.config()
	n := newNode(t, cfg)
	heard := make(chan error, 1)
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		err := request.ReceiveAllFrom(conn) // the end arrives while the answer has not begun
		if err == nil {
			err = response.SendTo(conn)
		}
		heard <- err
	})))
	if err := errors.Join(request.SendTo(client), client.CloseWrite()); err != nil {
		t.Fatalf("client: %v", err)
	}
	if err := response.ReceiveAllFrom(client); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := proxytest.Receive(t, heard, "the endpoint"); err != nil {
		t.Errorf("endpoint: %v", err)
	}
}

func (s suite) TestHalfCloseByTheEndpointKeepsTheUploadFlowing(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	heard := make(chan error, 1)
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		err := errors.Join(response.SendTo(conn), conn.CloseWrite())
		if err == nil {
			err = request.ReceiveAllFrom(conn)
		}
		heard <- err
	})))
	if err := response.ReceiveAllFrom(client); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := errors.Join(request.SendTo(client), client.CloseWrite()); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := proxytest.Receive(t, heard, "the endpoint"); err != nil {
		t.Errorf("endpoint: %v", err)
	}
}

func (s suite) TestBothDirectionsFlowAtOnce(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	heard := make(chan error, 1)
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		heard <- duplex(conn, response, request)
	})))
	if err := duplex(client, request, response); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := proxytest.Receive(t, heard, "the endpoint"); err != nil {
		t.Errorf("endpoint: %v", err)
	}
}

// duplex sends one stream and receives another at the same time, each to its end.
func duplex(conn *net.TCPConn, out, in proxytest.Stream) error {
	sent := make(chan error, 1)
	go func() { sent <- errors.Join(out.SendTo(conn), conn.CloseWrite()) }()
	err := in.ReceiveAllFrom(conn)
	return errors.Join(err, <-sent)
}

// This is `echo question | nc -N`: all is said before anything is answered, and the answer takes
// its time.
func (s suite) TestAClientThatFinishesFirstGetsItsAnswer(t *testing.T) { // D39
	cfg := s.config()
	n := newNode(t, cfg)
	finished, answer := make(chan string, 1), make(chan struct{})
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		question, err := io.ReadAll(conn)
		finished <- fmt.Sprintf("%s %v", question, err)
		<-answer
		io.WriteString(conn, "answer")
	})))
	io.WriteString(client, "question")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, want := proxytest.Receive(t, finished, "the question"), "question <nil>"; got != want {
		t.Errorf("endpoint got %q; want %q", got, want)
	}
	close(answer)
	if got, err := io.ReadAll(client); string(got) != "answer" || err != nil {
		t.Errorf("client got %q, %v; want the answer and a clean end", got, err)
	}
}

func (s suite) TestAServerThatSpeaksFirstIsHeard(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	greeting := []byte("220 ready")
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		conn.Write(greeting)
		proxytest.Hold(conn)
	})))
	got := make([]byte, len(greeting))
	if _, err := io.ReadFull(client, got); err != nil || string(got) != string(greeting) {
		t.Errorf("the client, which has said nothing, got %q, %v", got, err)
	}
}

func (s suite) TestAConnectionThatSaysNothingIsLeftAlone(t *testing.T) {
	cfg := s.config()
	cfg.HalfClosedTimeout, cfg.DialTotalTimeout, cfg.DialTimeout, cfg.UDPTimeout =
		100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	n := newNode(t, cfg)
	talk := proxytest.TalkTo(t, tcpThrough(t, n, served(t, proxytest.Chat("a"))))
	talk.MustSay(t, "hello")
	time.Sleep(500 * time.Millisecond) // five times any timeout: none is for a healthy connection
	talk.MustSay(t, "still here")
}

// Held back by Nagle's algorithm until a delayed acknowledgement, each second byte would take 40 ms; but the kernel does not delay the
// first acknowledgements of a connection. A busy machine may take longer for most exchanges, and not for all.
func (s suite) TestSmallMessagesAreNotHeldBack(t *testing.T) {
	// In two pieces that are too far apart to travel as one.
	write := func(conn *net.TCPConn, pair []byte) {
		conn.Write(pair[:1])
		time.Sleep(time.Millisecond)
		conn.Write(pair[1:])
	}
	cfg := s.config()
	n := newNode(t, cfg)
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		for pair := make([]byte, 2); ; write(conn, pair) {
			if _, err := io.ReadFull(conn, pair); err != nil {
				return
			}
		}
	})))
	const exchanges, atOnce = 100, 50 // of which so many need not wait for the delay of another
	fastest := time.Hour
	got := make([]byte, 2)
	for i := range exchanges {
		start := time.Now()
		write(client, []byte("ab"))
		if _, err := io.ReadFull(client, got); err != nil || string(got) != "ab" {
			t.Fatalf("got %q, %v", got, err)
		}
		if i >= atOnce {
			fastest = min(fastest, time.Since(start))
		}
	}
	if fastest > 30*time.Millisecond {
		t.Errorf("each exchange took %v or more", fastest)
	}
}

func (s suite) TestManyConnectionsAtOnceStayApart(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		buf := make([]byte, 8<<10)
		for {
			got, err := conn.Read(buf)
			if _, werr := conn.Write(buf[:got]); err != nil || werr != nil {
				return
			}
		}
	}))
	var clients sync.WaitGroup
	for i := range 200 {
		client := proxytest.Dial(t, addr)
		clients.Go(func() {
			own := proxytest.Stream{Seed: uint64(i), Size: 64 << 10}
			if err := duplex(client, own, own); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			client.Close()
		})
	}
	clients.Wait()
}

// Once one side has finished, the other may be silent for so long, and no longer: else a peer that
// neither speaks nor ends would hold the connection for good.
func (s suite) TestAHalfClosedConnectionThatFallsSilentEnds(t *testing.T) {
	for _, side := range []string{"client", "endpoint"} {
		t.Run("by the "+side, func(t *testing.T) {
			cfg := s.config()
			cfg.HalfClosedTimeout = 300 * time.Millisecond
			n := newNode(t, cfg)
			accepted := make(chan *net.TCPConn, 1)
			hold := make(chan struct{})
			defer close(hold)
			client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
				accepted <- conn
				<-hold
			})))
			finished, silent := client, proxytest.Receive(t, accepted, "the endpoint to accept")
			if side == "endpoint" {
				finished, silent = silent, finished
			}
			if err := finished.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if n, err := silent.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Fatalf("the silent side read %d, %v; want the end", n, err)
			}
			// What never came to its end must not look as if it had.
			if n, err := finished.Read(make([]byte, 1)); n != 0 || !proxytest.IsReset(err) {
				t.Errorf("the side that had finished read %d, %v; want a reset", n, err)
			}
		})
	}
}

func (s suite) TestAHalfClosedConnectionThatKeepsTalkingStays(t *testing.T) {
	cfg := s.config()
	cfg.HalfClosedTimeout = time.Second
	n := newNode(t, cfg)
	var current atomic.Pointer[func()]
	addr := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		proxytest.Discard(conn)
		beat := *current.Load()
		for range 40 { // a trickle, for more than twice the timeout
			beat()
			io.WriteString(conn, ".")
			time.Sleep(60 * time.Millisecond)
		}
	}))
	proxytest.Punctually(t, cfg.HalfClosedTimeout/2, func(beat func()) error {
		current.Store(&beat)
		client := proxytest.Dial(t, addr)
		client.CloseWrite()
		if got, err := io.ReadAll(client); len(got) != 40 || err != nil {
			return fmt.Errorf("got %d bytes of 40, then %v", len(got), err)
		}
		return nil
	})
}

// What comes in small pieces is passed on piece by piece, until its reader takes no more: that is in the
// midst of a piece. Nothing of it is lost, nor the end that follows it.
func (s suite) TestSmallPiecesReachAReaderThatBeginsLate(t *testing.T) {
	const most, size = 2000, 12 << 10
	piece := func(i int) proxytest.Stream { return proxytest.Stream{Seed: uint64(i), Size: size} }
	for _, direction := range []string{"down", "up"} {
		t.Run(direction, func(t *testing.T) {
			cfg := s.config()
			n := newNode(t, cfg)
			passed := func() uint64 {
				sum := totalsOf(n, "web")
				return sum.Sent + sum.Received
			}
			sent := make(chan int, 1) // how many pieces
			write := func(conn *net.TCPConn) error {
				for i := range most {
					if err := piece(i).SendTo(conn); err != nil {
						return err
					}
					for start := time.Now(); passed() < uint64(i+1)*size; time.Sleep(100 * time.Microsecond) {
						if time.Since(start) > 100*time.Millisecond {
							sent <- i + 1
							return conn.CloseWrite()
						}
					}
				}
				return fmt.Errorf("%d bytes were taken although nobody reads", most*size)
			}
			read := func(conn *net.TCPConn) error {
				for i := range <-sent {
					if err := piece(i).ReceiveFrom(conn); err != nil {
						return fmt.Errorf("piece %d: %w", i, err)
					}
				}
				return proxytest.Stream{}.ReceiveAllFrom(conn)
			}
			there, here := write, read
			if direction == "up" {
				there, here = read, write
			}
			ended := make(chan error, 1)
			endpoint := proxytest.ServeNarrow(t, "127.0.0.1:0", 8<<10, func(conn *net.TCPConn) { ended <- there(conn) })
			client := proxytest.DialNarrow(t, tcpThrough(t, n, endpoint.Addr), 8<<10)
			if err := here(client); err != nil {
				t.Errorf("client: %v", err)
			}
			if err := proxytest.Receive(t, ended, "the endpoint"); err != nil {
				t.Errorf("endpoint: %v", err)
			}
		})
	}
}

// kernelHolds returns how many bytes the kernel may hold between the two connections of a relay: its largest receive buffer and its
// largest send buffer. Linux has had up to 32 MiB for the first since 6.17.
func kernelHolds(t *testing.T) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 16 * mib
	}
	var sum int64
	for _, name := range []string{"tcp_rmem", "tcp_wmem"} {
		value, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var least, first, most int64
		if _, err := fmt.Sscan(string(value), &least, &first, &most); err != nil {
			t.Fatalf("%s is %q: %v", name, value, err)
		}
		sum += most
	}
	return sum
}

// A writer much faster than its reader is held back by the kernel's buffers; the proxy adds little
// to them and nothing that grows.
func (s suite) TestASlowReaderHoldsBoundedMemory(t *testing.T) {
	const (
		relays = 4
		ours   = 512 << 10
	)
	bound := kernelHolds(t) + 8*mib // and what the ends and a pipe hold
	offer := bound + 40*mib         // what each writer would send
	for _, direction := range []string{"down", "up"} {
		t.Run(direction, func(t *testing.T) {
			cfg := s.config()
			n := newNode(t, cfg)
			var sent atomic.Int64
			write := func(conn *net.TCPConn) {
				conn.SetWriteBuffer(64 << 10)
				chunk := make([]byte, 64<<10)
				for range int(offer) / len(chunk) {
					m, err := conn.Write(chunk)
					sent.Add(int64(m))
					if err != nil {
						return
					}
				}
			}
			release := make(chan struct{})
			defer close(release)
			serve := write
			if direction == "up" {
				serve = func(conn *net.TCPConn) { conn.SetReadBuffer(64 << 10); <-release }
			}
			addr := tcpThrough(t, n, served(t, serve))
			before := heap()
			var writers sync.WaitGroup
			for range relays {
				client := proxytest.Dial(t, addr)
				client.SetReadBuffer(64 << 10)
				if direction == "up" {
					writers.Go(func() { write(client) })
				}
				t.Cleanup(func() { client.Close(); writers.Wait() })
			}
			proxytest.Eventually(t, func() bool { return sent.Load() > 0 }, "the first byte")
			stuck := proxytest.Settled(t, sent.Load, 300*time.Millisecond)
			if stuck > relays*bound {
				t.Errorf("%d writers whose readers do not read were rid of %d bytes; want at most %d of each", relays, stuck, bound)
			}
			if grown := int64(heap()) - int64(before); grown > relays*ours {
				t.Errorf("the heap grew by %d bytes for %d stalled relays", grown, relays)
			}
			t.Logf("taken from each writer: %d KiB", stuck/relays>>10)
			// No other goroutine waits for them.
			n.apply(endpoints("web", served(t, proxytest.Chat("other"))))
			if got := proxytest.TalkTo(t, addr).MustSay(t, "hello"); got != "other" {
				t.Errorf("beside stalled relays, answered by %q", got)
			}
		})
	}
}

// heap returns the bytes in use, after two collections: what lies in pools survives one.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (s suite) TestConnectionsGoToTheEndpointsInTurn(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	var addrs []registry.Addr
	for _, name := range []string{"1", "2", "3"} {
		addrs = append(addrs, served(t, proxytest.Identify(name)))
	}
	addr := tcpThrough(t, n, addrs...)
	ask := func(times int) (order string) {
		for range times {
			order += proxytest.WhoAnswers(t, addr)
		}
		return order
	}
	if got, want := ask(7), "1231231"; got != want {
		t.Errorf("connections went to %s; want %s", got, want)
	}
	n.apply(endpoints("web", addrs[2], addrs[1], addrs[0])) // the same in another order: no change
	if got, want := ask(3), "231"; got != want {
		t.Errorf("after a change of order only, to %s; want %s", got, want)
	}
	n.apply(endpoints("web", addrs[0], addrs[2])) // 2 would have been next
	if got, want := ask(3), "313"; got != want {
		t.Errorf("after the next one went, to %s; want %s", got, want)
	}
}

func (s suite) TestServicesRotateEachForItself(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	one, two := served(t, proxytest.Identify("1")), served(t, proxytest.Identify("2"))
	a, b := tcpThrough(t, n, one, two), proxytest.On(proxytest.FreePort(t))
	n.apply(service("other", tcp(b.Port())), endpoints("other", one, two))
	var order string
	for range 3 {
		order += proxytest.WhoAnswers(t, a) + proxytest.WhoAnswers(t, b)
	}
	if want := "112211"; order != want {
		t.Errorf("connections to two services in turn went to %s; want %s", order, want)
	}
	n.apply(noService("web"), endpoints("web")) // does not disturb the other
	if got := proxytest.WhoAnswers(t, b); got != "2" {
		t.Errorf("after another service went, to %s; want 2", got)
	}
}

func (s suite) TestEachPortOfAServiceHasEndpointsOfItsOwn(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	web, admin := proxytest.FreePort(t), proxytest.FreePort(t)
	n.apply(
		service("web", registry.Port{Name: "http", Number: web}, registry.Port{Name: "admin", Number: admin}),
		endpointsOf("web", "http", served(t, proxytest.Identify("http endpoint"))),
		endpointsOf("web", "admin", served(t, proxytest.Identify("admin endpoint"))))
	if got := proxytest.WhoAnswers(t, proxytest.On(web)); got != "http endpoint" {
		t.Errorf("port http is answered by %q", got)
	}
	if got := proxytest.WhoAnswers(t, proxytest.On(admin)); got != "admin endpoint" {
		t.Errorf("port admin is answered by %q", got)
	}
}
