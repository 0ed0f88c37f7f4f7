package proxytest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kubeproxy/registry"
)

// A TCPServer is an endpoint. It hands each connection to its handler, on a goroutine of its own.
type TCPServer struct {
	Addr registry.Addr

	t        testing.TB
	listener *net.TCPListener
	handle   func(*net.TCPConn)
	handlers sync.WaitGroup
	accepted atomic.Int64

	mu     sync.Mutex // guards the fields below
	closed bool
	conns  map[*net.TCPConn]struct{}
}

// ServeTCP starts an endpoint at addr, such as "127.0.0.1:0", that ends with the test. The
// connection is closed when handle returns; nothing on it can block for longer than twice
// [Patience].
func ServeTCP(t testing.TB, addr string, handle func(*net.TCPConn)) *TCPServer {
	t.Helper()
	return serve(t, net.ListenConfig{}, addr, handle)
}

// ServeNarrow is [ServeTCP] for an endpoint whose kernel takes only so many bytes ahead of its
// reading (see [DialNarrow]).
func ServeNarrow(t testing.TB, addr string, buffer int, handle func(*net.TCPConn)) *TCPServer {
	t.Helper()
	return serve(t, net.ListenConfig{Control: narrow(buffer)}, addr, handle)
}

func serve(t testing.TB, config net.ListenConfig, addr string, handle func(*net.TCPConn)) *TCPServer {
	t.Helper()
	listener, err := listenTCP(t.Context(), config, addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &TCPServer{
		Addr:     At(listener.Addr().(*net.TCPAddr).AddrPort()),
		t:        t,
		listener: listener,
		handle:   handle,
		conns:    make(map[*net.TCPConn]struct{}),
	}
	s.handlers.Go(s.accept)
	appears(registry.TCP, s.Addr.IP)
	t.Cleanup(s.Close)
	return s
}

// narrow gives a socket a small receive buffer before it is connected.
func narrow(buffer int) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) (err error) {
		if cerr := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(descriptor(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer)
		}); cerr != nil {
			return cerr
		}
		return err
	}
}

// At makes an endpoint's address of a literal one.
func At(addr netip.AddrPort) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())}
}

// Accepted counts the connections so far.
func (s *TCPServer) Accepted() int64 { return s.accepted.Load() }

// StopListening refuses further connections. Those there are stay.
func (s *TCPServer) StopListening() {
	s.listener.Close()
	vanishes(s.t, registry.TCP, s.Addr.IP)
}

// Close stops listening, cuts every connection and waits for the handlers. It is safe twice.
func (s *TCPServer) Close() {
	s.StopListening()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.handlers.Wait()
}

func (s *TCPServer) accept() {
	for {
		conn, err := s.listener.AcceptTCP()
		if err != nil {
			return
		}
		if !s.keep(conn) {
			conn.Close()
			return
		}
		s.accepted.Add(1)
		conn.SetDeadline(time.Now().Add(2 * Patience))
		s.handlers.Go(func() {
			defer s.drop(conn)
			s.handle(conn)
		})
	}
}

func (s *TCPServer) keep(conn *net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.conns[conn] = struct{}{}
	}
	return !s.closed
}

func (s *TCPServer) drop(conn *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	conn.Close()
}

// Identify answers every connection with a name, without being asked, and then waits for the client
// to finish.
func Identify(name string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		if _, err := io.WriteString(conn, name); err != nil {
			return
		}
		conn.CloseWrite()
		Discard(conn)
	}
}

// Chat answers every line with "name: line", until the client finishes. A connection that stays
// open shows that it does by chatting.
func Chat(name string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		lines := bufio.NewReader(conn)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := io.WriteString(conn, name+": "+line); err != nil {
				return
			}
		}
	}
}

// Hold keeps every connection open until the client ends it.
func Hold(conn *net.TCPConn) { Discard(conn) }

// Discard reads to the end, and returns how it ended: nil for a clean end. Unlike io.Copy it leaves
// no pipes behind.
func Discard(conn *net.TCPConn) error {
	buf := make([]byte, 32<<10)
	for {
		if _, err := conn.Read(buf); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// IsReset reports whether a connection ended by the peer's reset.
func IsReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Reset ends a connection with a reset, at once.
func Reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// BlackHole is an endpoint that neither accepts nor refuses: its queue of connections is full, and
// the kernel drops what else arrives, for as long as the test lasts.
func BlackHole(t testing.TB) registry.Addr {
	t.Helper()
	return BlackHoleAt(t, "127.0.0.1:0")
}

// BlackHoleAt is [BlackHole] at an address.
func BlackHoleAt(t testing.TB, addr string) registry.Addr {
	t.Helper()
	at, _ := fullQueue(t, addr)
	return at
}

// FullQueue is a BlackHole until relieve makes room for one more connection.
func FullQueue(t testing.TB) (addr registry.Addr, relieve func()) {
	t.Helper()
	return fullQueue(t, "127.0.0.1:0")
}

func fullQueue(t testing.TB, at string) (addr registry.Addr, relieve func()) {
	t.Helper()
	listener, err := listenTCP(t.Context(), net.ListenConfig{}, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	raw, err := listener.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// A queue of length 0 holds one connection: the one that fills it.
	if cerr := raw.Control(func(fd uintptr) { err = syscall.Listen(descriptor(fd), 0) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	var filler net.Conn
	if err := elsewhere(func() (err error) {
		filler, err = net.DialTimeout("tcp", listener.Addr().String(), Patience)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { filler.Close() })
	return At(listener.Addr().(*net.TCPAddr).AddrPort()), func() {
		t.Helper()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
}

// Refusing is an endpoint that refuses: its port is closed, and it is no port that the kernel
// would give to a client.
func Refusing(t testing.TB) registry.Addr {
	t.Helper()
	return At(ofRemote(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), FreePort(t))))
}

// Loopback is 127.0.0.1.
var Loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
