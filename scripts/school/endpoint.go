package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// An endpoint answers at one address: by TCP with whatever serve does, by UDP with NAME:DATAGRAM.
type endpoint struct {
	name, addr string
	listener   net.Listener
	datagrams  *net.UDPConn

	mu     sync.Mutex // guards the fields below
	closed bool
	conns  map[*net.TCPConn]bool
}

// endpoint starts an endpoint, which closes with the trial.
func (t *trial) endpoint(name string, serve func(conn *net.TCPConn)) *endpoint {
	e := &endpoint{name: name, addr: address(t.port()), conns: make(map[*net.TCPConn]bool)}
	var err error
	e.listener, err = net.Listen("tcp", e.addr)
	t.must(err)
	t.atEnd(e.close)
	at, err := net.ResolveUDPAddr("udp", e.addr)
	t.must(err)
	e.datagrams, err = net.ListenUDP("udp", at)
	t.must(err)
	_ = e.datagrams.SetReadBuffer(1 << 20) // clients send again what is lost
	go e.answerDatagrams()
	go func() {
		for {
			conn, err := e.listener.Accept()
			if err != nil {
				return // it is closed
			}
			go e.serve(conn.(*net.TCPConn), serve)
		}
	}()
	t.say("endpoint %s answers at %s", name, e.addr)
	return e
}

func (e *endpoint) serve(conn *net.TCPConn, serve func(conn *net.TCPConn)) {
	defer conn.Close()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.conns[conn] = true
	e.mu.Unlock()
	serve(conn)
	e.mu.Lock()
	delete(e.conns, conn)
	e.mu.Unlock()
}

func (e *endpoint) answerDatagrams() {
	buf := make([]byte, 65536)
	for {
		n, client, err := e.datagrams.ReadFromUDP(buf)
		if err != nil {
			return // it is closed
		}
		_, _ = e.datagrams.WriteToUDP(append([]byte(e.name+":"), buf[:n]...), client) // the client sends again
	}
}

// close resets all connections, and refuses others from then on. It may be called twice.
func (e *endpoint) close() {
	e.listener.Close()
	if e.datagrams != nil {
		e.datagrams.Close()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for conn := range e.conns {
		_ = conn.SetLinger(0) // it may just have ended
		conn.Close()
	}
}

// named starts an endpoint that says its name and sends back whatever comes.
func (t *trial) named(name string) *endpoint {
	return t.endpoint(name, func(conn *net.TCPConn) {
		if _, err := io.WriteString(conn, name+"\n"); err != nil {
			return
		}
		if _, err := io.Copy(conn, conn); err == nil {
			_ = conn.CloseWrite()
		}
	})
}

// reader starts an endpoint that reads to the end, and then says how many bytes came.
func (t *trial) reader(name string) *endpoint {
	return t.endpoint(name, func(conn *net.TCPConn) {
		if n, err := io.Copy(io.Discard, conn); err == nil {
			fmt.Fprintf(conn, "%s has read %d bytes to the end\n", name, n)
		}
	})
}

// early starts an endpoint that has finished answering at once, and then reads to the end. read has the bytes of the longest reading.
func (t *trial) early(name string, read *atomic.Int64) *endpoint {
	return t.endpoint(name, func(conn *net.TCPConn) {
		if _, err := io.WriteString(conn, name+"\n"); err != nil {
			return
		}
		_ = conn.CloseWrite()
		if n, err := io.Copy(io.Discard, conn); err == nil && n > read.Load() {
			read.Store(n)
		}
	})
}

// refusing returns an address at which nobody listens.
func (t *trial) refusing() string {
	addr := address(t.port())
	t.say("nobody listens at %s", addr)
	return addr
}

// A queueless listener never accepts, and has no room for those that wait.
type queueless struct {
	fd   int
	addr string
}

func listenWithoutQueue(port int) (*queueless, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	if err := syscall.Listen(fd, 0); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return &queueless{fd, address(port)}, nil
}

func (q *queueless) close() { syscall.Close(q.fd) }

// pace is the pause of clients that go on until they are stopped: they shall use little of the machine.
const pace = 5 * time.Millisecond
