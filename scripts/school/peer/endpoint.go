package peer

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// An Endpoint answers at one address: by TCP with whatever its function does, by UDP with NAME:DATAGRAM.
type Endpoint struct {
	Name, Addr string
	serve      func(conn *net.TCPConn)

	mu        sync.Mutex // guards the fields below
	listener  net.Listener
	datagrams *net.UDPConn
	conns     map[*net.TCPConn]bool // nil: it is closed
}

// NewEndpoint returns an endpoint that does not answer yet. serve has the connection until it returns.
func NewEndpoint(name, addr string, serve func(conn *net.TCPConn)) *Endpoint {
	return &Endpoint{Name: name, Addr: addr, serve: serve}
}

// Open has it answer. After Close it may be called again.
func (e *Endpoint) Open() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	listener, err := net.Listen("tcp", e.Addr)
	if err != nil {
		return err
	}
	at, err := net.ResolveUDPAddr("udp", e.Addr)
	if err == nil {
		e.datagrams, err = net.ListenUDP("udp", at)
	}
	if err != nil {
		listener.Close()
		return err
	}
	_ = e.datagrams.SetReadBuffer(1 << 20) // clients send again what is lost
	e.listener, e.conns = listener, make(map[*net.TCPConn]bool)
	go e.answerDatagrams(e.datagrams)
	go e.accept(listener)
	return nil
}

func (e *Endpoint) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // it is closed
		}
		go e.answer(conn.(*net.TCPConn))
	}
}

func (e *Endpoint) answer(conn *net.TCPConn) {
	defer conn.Close()
	if !e.keep(conn) {
		return
	}
	e.serve(conn)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, conn)
}

// keep reports whether a connection may begin.
func (e *Endpoint) keep(conn *net.TCPConn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conns == nil {
		return false
	}
	e.conns[conn] = true
	return true
}

func (e *Endpoint) answerDatagrams(conn *net.UDPConn) {
	buf := make([]byte, 65536)
	for {
		n, client, err := conn.ReadFromUDP(buf)
		if err != nil {
			return // it is closed
		}
		_, _ = conn.WriteToUDP(append([]byte(e.Name+":"), buf[:n]...), client) // the client sends again
	}
}

// Close resets all connections, and refuses others from then on. It may be called twice.
func (e *Endpoint) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conns == nil {
		return
	}
	e.listener.Close()
	e.datagrams.Close()
	for conn := range e.conns {
		_ = conn.SetLinger(0) // it may just have ended
		conn.Close()
	}
	e.conns = nil
}

// Echo says a name, and sends back whatever comes.
func Echo(name string) func(conn *net.TCPConn) {
	return func(conn *net.TCPConn) {
		if _, err := io.WriteString(conn, name+"\n"); err != nil {
			return
		}
		if _, err := io.Copy(conn, conn); err == nil {
			_ = conn.CloseWrite()
		}
	}
}

// Read reads to the end, and then says how many bytes came.
func Read(name string) func(conn *net.TCPConn) {
	return func(conn *net.TCPConn) {
		if n, err := io.Copy(io.Discard, conn); err == nil {
			fmt.Fprintf(conn, "%s has read %d bytes to the end\n", name, n)
		}
	}
}

// Early has finished answering at once, and then reads to the end. read has the bytes of the longest reading.
func Early(name string, read *atomic.Int64) func(conn *net.TCPConn) {
	return func(conn *net.TCPConn) {
		if _, err := io.WriteString(conn, name+"\n"); err != nil {
			return
		}
		_ = conn.CloseWrite()
		if n, err := io.Copy(io.Discard, conn); err == nil && n > read.Load() {
			read.Store(n)
		}
	}
}

// Download sends a block again and again, n bytes in all, and waits until the client goes. left has the bytes that the last client was sent.
func Download(block []byte, n int64, left *atomic.Int64) func(conn *net.TCPConn) {
	return func(conn *net.TCPConn) {
		left.Store(0)
		for left.Load() < n {
			k, err := conn.Write(block)
			if left.Add(int64(k)); err != nil {
				return
			}
		}
		_ = conn.CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}
}

// Silent has an address at a port of 127.0.0.1 where nobody answers and nobody refuses: a listener that never accepts, with a full queue. The
// function that it returns ends it.
func Silent(port int) (end func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	waiting := []net.Conn{}
	end = func() {
		syscall.Close(fd)
		for _, conn := range waiting {
			conn.Close()
		}
	}
	at := syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}
	if err := errors.Join(syscall.Bind(fd, &at), syscall.Listen(fd, 0)); err != nil {
		end()
		return nil, err
	}
	for {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err != nil {
			return end, nil
		}
		waiting = append(waiting, conn)
	}
}

// HasIPv6 reports whether this machine has the address ::1.
func HasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// RandomBlock returns 1 MiB, the same each time, that no pattern repeats in.
func RandomBlock() []byte {
	block := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(block) // never fails
	return block
}
