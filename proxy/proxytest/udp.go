package proxytest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kubeproxy/registry"
)

// MaxDatagram is the longest payload that fits into one datagram over IPv4.
const MaxDatagram = 65535 - 20 - 8

// A UDPServer is an endpoint. It answers each datagram with what reply makes of it.
type UDPServer struct {
	Addr registry.Addr

	t        testing.TB
	conn     *net.UDPConn
	received atomic.Int64
	reading  sync.WaitGroup

	mu   sync.Mutex // guards the field below
	from map[netip.AddrPort]bool
}

// ServeUDP starts an endpoint at addr, such as "127.0.0.1:0", that ends with the test. A nil answer
// is not sent.
func ServeUDP(t testing.TB, addr string, reply func(payload []byte, from netip.AddrPort) []byte) *UDPServer {
	t.Helper()
	var conn *net.UDPConn
	if err := elsewhere(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(ofRemote(netip.MustParseAddrPort(addr))))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	conn.SetReadBuffer(2 << 20)
	s := &UDPServer{Addr: At(conn.LocalAddr().(*net.UDPAddr).AddrPort()), t: t, conn: conn, from: make(map[netip.AddrPort]bool)}
	s.reading.Go(func() { s.read(reply) })
	appears(registry.UDP, s.Addr.IP)
	t.Cleanup(s.Close)
	return s
}

func (s *UDPServer) read(reply func([]byte, netip.AddrPort) []byte) {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			continue // what an earlier answer met with
		}
		s.mu.Lock()
		s.from[from] = true
		s.mu.Unlock()
		s.received.Add(1)
		if answer := reply(buf[:n], from); answer != nil {
			s.conn.WriteToUDPAddrPort(answer, from)
		}
	}
}

// Send sends a datagram to a session of the proxy, unasked.
func (s *UDPServer) Send(payload string, to netip.AddrPort) error {
	_, err := s.conn.WriteToUDPAddrPort([]byte(payload), to)
	return err
}

// Received counts the datagrams so far.
func (s *UDPServer) Received() int64 { return s.received.Load() }

// Sessions counts the addresses that datagrams have come from so far: one for each session of the
// proxy, if no port was used twice.
func (s *UDPServer) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.from)
}

// Close ends the endpoint: what still arrives is refused. It is safe twice.
func (s *UDPServer) Close() {
	s.conn.Close()
	s.reading.Wait()
	vanishes(s.t, registry.UDP, s.Addr.IP)
}

// IdentifyUDP answers each datagram with a name, the address it came from (which tells the proxy's
// sessions apart) and the payload.
func IdentifyUDP(name string) func([]byte, netip.AddrPort) []byte {
	return func(payload []byte, from netip.AddrPort) []byte {
		return fmt.Appendf(nil, "%s %s %s", name, from, payload)
	}
}

// EchoUDP answers each datagram with itself, also an empty one.
func EchoUDP(payload []byte, _ netip.AddrPort) []byte { return payload }

// MuteUDP answers nothing.
func MuteUDP([]byte, netip.AddrPort) []byte { return nil }

// A UDPClient is one client address, connected to one address of the proxy: the kernel gives it
// only what comes from there.
type UDPClient struct {
	*net.UDPConn
	sent int
	buf  []byte
}

// An Answer is what [IdentifyUDP] answers.
type Answer struct {
	Name    string         // of the endpoint
	Session netip.AddrPort // the proxy's address, as the endpoint sees it
}

// DialUDP makes a client of addr that ends with the test.
func DialUDP(t testing.TB, addr netip.AddrPort) *UDPClient {
	t.Helper()
	return DialUDPFrom(t, netip.Addr{}, addr)
}

// DialUDPFrom is [DialUDP] for a client with an address of its own, such as 127.0.0.2.
func DialUDPFrom(t testing.TB, client netip.Addr, addr netip.AddrPort) *UDPClient {
	t.Helper()
	var local *net.UDPAddr
	if client.IsValid() {
		local = net.UDPAddrFromAddrPort(ofRemote(netip.AddrPortFrom(client, 0)))
	}
	var conn *net.UDPConn
	if err := elsewhere(func() (err error) {
		conn, err = net.DialUDP("udp", local, net.UDPAddrFromAddrPort(ofNode(addr)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &UDPClient{UDPConn: conn, buf: make([]byte, 1<<16)}
}

// errNoAnswer is what Try returns when nothing came in time.
var errNoAnswer = errors.New("no answer")

// Try sends one datagram and waits for its answer, for as long as it is told.
func (c *UDPClient) Try(wait time.Duration) (Answer, error) {
	c.sent++
	payload := fmt.Sprint("datagram-", c.sent)
	if _, err := c.Write([]byte(payload)); err != nil {
		return Answer{}, err
	}
	c.SetReadDeadline(time.Now().Add(wait))
	for {
		n, err := c.Read(c.buf)
		if isTimeout(err) {
			return Answer{}, errNoAnswer
		} else if err != nil {
			return Answer{}, err
		}
		fields := strings.Fields(string(c.buf[:n]))
		if len(fields) != 3 {
			return Answer{}, fmt.Errorf("not an identity: %q", c.buf[:n])
		}
		session, err := netip.ParseAddrPort(fields[1])
		if err != nil {
			return Answer{}, err
		}
		if fields[2] == payload { // else late, and to an earlier one
			return Answer{fields[0], session}, nil
		}
	}
}

// Ask sends one datagram, which must be answered.
func (c *UDPClient) Ask(t testing.TB) Answer {
	t.Helper()
	answer, err := c.Try(Patience)
	if err != nil {
		t.Fatalf("%s → %s: %v", c.LocalAddr(), c.RemoteAddr(), err)
	}
	return answer
}

// AskOften sends datagrams until one is answered.
func (c *UDPClient) AskOften(t testing.TB) (a Answer) {
	t.Helper()
	Eventually(t, func() (ok bool) {
		var err error
		a, err = c.Try(200 * time.Millisecond)
		return err == nil
	}, "an answer to %s from %s", c.LocalAddr(), c.RemoteAddr())
	return a
}

// Exchange sends a datagram and returns the next one that comes.
func (c *UDPClient) Exchange(payload []byte) ([]byte, error) {
	if _, err := c.Write(payload); err != nil {
		return nil, err
	}
	c.SetReadDeadline(time.Now().Add(Patience))
	n, err := c.Read(c.buf)
	return c.buf[:n], err
}

// RefusesUDP reports whether no socket listens at addr: a datagram is answered by the kernel's refusal.
func RefusesUDP(t testing.TB, addr netip.AddrPort) bool {
	t.Helper()
	c := DialUDP(t, addr)
	defer c.Close()
	_, err := c.Try(3 * time.Second) // a refusal comes at once, unless the machine is busy
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Drops reports whether what this client sends is neither answered nor refused, for a moment.
func (c *UDPClient) Drops() bool {
	_, err := c.Try(150 * time.Millisecond)
	return errors.Is(err, errNoAnswer)
}

// NewUDPSocket makes a client that is not connected, on an address of its own, and so may speak to
// several addresses.
func NewUDPSocket(t testing.TB) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	if err := elsewhere(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(ofRemote(netip.MustParseAddrPort("127.0.0.1:0"))))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// AskFrom sends a datagram from a socket that is not connected, and returns where the answer came
// from.
func AskFrom(t testing.TB, conn *net.UDPConn, to netip.AddrPort) (from netip.AddrPort) {
	t.Helper()
	if _, err := conn.WriteToUDPAddrPort([]byte("question"), to); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(Patience))
	_, from, err := conn.ReadFromUDPAddrPort(make([]byte, 100))
	if err != nil {
		t.Fatalf("ask %s: %v", to, err)
	}
	return netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}
