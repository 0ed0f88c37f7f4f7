//go:build linux

package load

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// The backends run in a process of their own, so that neither their work nor their descriptors count
// for anybody else. A thread for round trips over TCP, one for bulk, one for UDP; or goroutines for round trips.

// BackendHosts is how many addresses the backends have. Each has 28,000 ports to be connected to from, so
// that proxies find one free while others are in TIME_WAIT.
const BackendHosts = 8

// The kinds of socket in the TCP loops.
const (
	echoListener = iota
	bulkListener
	echoConn
	bulkConn // waits for a byte, then sends without end
)

// Ports are where the backends listen, for each purpose.
type Ports struct {
	Echo  uint16 // TCP: sends back what comes
	Bulk  uint16 // TCP: sends without end
	UDP   uint16 // UDP: sends back what comes
	Stamp uint16 // UDP: says which backend it is, and the time
}

// PortsFrom gives four ports in a row.
func PortsFrom(base uint16) Ports { return Ports{base, base + 1, base + 2, base + 3} }

// StartBackends starts the backends, which take their ports from base on, and waits until they answer. The
// executable is a program that calls [RunBackends] when its first argument is "backends", with the others.
func StartBackends(ps *process.Group, executable string, base uint16, written Clients) (*process.Process, error) {
	p, err := ps.Start("backends", executable, "backends", strconv.Itoa(int(base)), string(written))
	if err != nil {
		return nil, err
	}
	return p, p.Await(10*time.Second, func() bool { return p.Said("ready") })
}

// RunBackends opens the backends on the ports from args[0] on, written as args[1] says, reports that on standard output, and serves until
// standard input ends: when the process that started it is gone.
func RunBackends(args []string) (err error) {
	defer try.Catch(&err)
	if len(args) != 2 {
		return fmt.Errorf("backends: want a port and %s or %s, not %q", Light, Goroutines, args)
	}
	n := try.Get(strconv.ParseUint(args[0], 10, 16))
	try.Get(measure.RaiseDescriptorLimit())
	ports := PortsFrom(uint16(n))
	// A thread for each: else round trips would wait here while bulk is written, the more so the better a
	// proxy carries it.
	bulk := try.Get(listenEverywhere(ports.Bulk, bulkListener))
	stamps := try.Get(listenUDPEverywhere(ports.Stamp))
	failed := make(chan error, 4)
	var echoes []int
	if Clients(args[1]) == Goroutines {
		try.Do(serveByGoroutines(ports, failed))
	} else {
		keepProcessors(3)
		roundTrips := try.Get(listenEverywhere(ports.Echo, echoListener))
		echoes = try.Get(listenUDPEverywhere(ports.UDP))
		go func() { failed <- serveTCP(roundTrips) }()
	}
	go func() { failed <- serveTCP(bulk) }()
	go func() { failed <- serveUDP(echoes, stamps) }()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // it returns when standard input ends
		failed <- nil
	}()
	fmt.Println("ready")
	return <-failed
}

// StartEcho opens a port of this machine, over TCP and UDP, that sends back what comes. The channel has the error that ends it. The process
// is for nothing else.
func StartEcho(at netip.AddrPort) (failed chan error, err error) {
	defer try.Catch(&err)
	keepProcessors(2)
	p := try.Get(newPoller())
	listener := try.Get(listenTCP(at))
	try.Do(p.set(unix.EPOLL_CTL_ADD, listener, unix.EPOLLIN, listener, echoListener))
	datagrams := try.Get(listenUDP(at))
	failed = make(chan error, 2)
	go func() { failed <- serveTCP(p) }()
	go func() { failed <- serveUDP([]int{datagrams}, nil) }()
	return failed, nil
}

// listenEverywhere listens on a port of every backend, for one kind of connection.
func listenEverywhere(port uint16, kind int) (_ *poller, err error) {
	defer try.Catch(&err)
	p := try.Get(newPoller())
	for _, addr := range BackendsAt(port) {
		fd := try.Get(listenTCP(addr))
		try.Do(p.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, fd, kind))
	}
	return p, nil
}

// listenUDPEverywhere opens a UDP port of every backend.
func listenUDPEverywhere(port uint16) (fds []int, err error) {
	defer try.Catch(&err)
	for _, addr := range BackendsAt(port) {
		fds = append(fds, try.Get(listenUDP(addr)))
	}
	return fds, nil
}

// BackendHost is the address of one of the backends.
func BackendHost(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 2, byte(1 + i)}) }

// BackendsAt gives the addresses of all backends that have this port.
func BackendsAt(port uint16) []netip.AddrPort {
	var all []netip.AddrPort
	for i := range BackendHosts {
		all = append(all, netip.AddrPortFrom(BackendHost(i), port))
	}
	return all
}

func listenTCP(addr netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // accepted sockets inherit it
	}
	if err == nil {
		err = unix.Bind(fd, address(addr))
	}
	if err == nil {
		err = unix.Listen(fd, 4096)
	}
	if err != nil {
		return -1, fmt.Errorf("listen on %v: %w", addr, err)
	}
	return fd, nil
}

func serveTCP(p *poller) error {
	runtime.LockOSThread()
	buf := make([]byte, 256<<10)
	for {
		events, err := p.wait(time.Minute)
		if err != nil {
			return err
		}
		for _, ev := range events {
			fd := int(ev.Fd)
			switch ev.Pad {
			case echoListener:
				acceptAll(p, fd, echoConn)
			case bulkListener:
				acceptAll(p, fd, bulkConn)
			case echoConn:
				if !sendBack(fd, buf) {
					closeFD(fd) // the client has finished, or is gone
				}
			case bulkConn:
				if !sendBulk(p, fd, ev.Events, buf) {
					unix.Close(fd)
				}
			}
		}
	}
}

// sendBack sends back what has come, and reports whether the connection lives.
func sendBack(fd int, buf []byte) bool {
	n, err := read(fd, buf)
	if n <= 0 {
		return err != nil && again(err)
	}
	sent, err := write(fd, buf[:n])
	return err == nil && sent == n
}

// sendBulk waits for a byte, and then writes as much as there is room for. It reports whether the connection lives.
func sendBulk(p *poller, fd int, events uint32, buf []byte) bool {
	if events&unix.EPOLLOUT != 0 {
		_, err := unix.Write(fd, buf)
		return err == nil || again(err)
	}
	n, err := unix.Read(fd, buf)
	return n > 0 && p.set(unix.EPOLL_CTL_MOD, fd, unix.EPOLLOUT, fd, bulkConn) == nil || err != nil && again(err)
}

// acceptAll takes what waits at a listener.
func acceptAll(p *poller, listener, kind int) {
	for range 64 {
		// unix.Accept4 would allocate the peer's address.
		fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		if errno != 0 {
			return
		}
		if p.set(unix.EPOLL_CTL_ADD, int(fd), unix.EPOLLIN, int(fd), kind) != nil {
			unix.Close(int(fd))
		}
	}
}

func listenUDP(addr netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	// As much as a burst may bring: more than others may ask for, if we are root.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 32<<20) // as much as is allowed
	}
	if err := unix.Bind(fd, address(addr)); err != nil {
		return -1, fmt.Errorf("listen on %v: %w", addr, err)
	}
	return fd, nil
}

// serveUDP sends back what comes. On the sockets among stamps, the index of the socket and the time
// are written into it first.
func serveUDP(echoes, stamps []int) (err error) {
	defer try.Catch(&err)
	runtime.LockOSThread()
	p := try.Get(newPoller())
	for _, fd := range echoes {
		try.Do(p.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, fd, 0))
	}
	for i, fd := range stamps {
		try.Do(p.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, fd, 1+i))
	}
	b := newMessages()
	for {
		events := try.Get(p.wait(time.Minute))
		for _, ev := range events {
			n := b.receive(int(ev.Fd))
			if ev.Pad > 0 {
				for i := range n {
					writeStamp(&b.bufs[i], Stamp{uint64(ev.Pad), measure.SinceBoot()})
				}
			}
			b.send(int(ev.Fd), n)
		}
	}
}

// messages are datagrams that are received and sent by one system call.
type messages struct {
	headers [64]unix.Mmsghdr
	vectors [64]unix.Iovec
	names   [64]unix.RawSockaddrInet4
	bufs    [64][messageSize]byte
}

func newMessages() *messages {
	m := &messages{}
	for i := range m.headers {
		h := &m.headers[i].Hdr
		m.vectors[i].Base = &m.bufs[i][0]
		h.Iov, h.Name = &m.vectors[i], (*byte)(unsafe.Pointer(&m.names[i]))
		h.SetIovlen(1)
	}
	return m
}

func (m *messages) receive(fd int) int {
	for i := range m.headers {
		m.vectors[i].SetLen(messageSize)
		m.headers[i].Hdr.Namelen = unix.SizeofSockaddrInet4
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.headers)), uintptr(len(m.headers)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	for i := range int(n) {
		m.vectors[i].SetLen(int(m.headers[i].Len))
	}
	return int(n)
}

// send sends the first n. One that cannot be sent is lost, as datagrams may be.
func (m *messages) send(fd, n int) {
	for sent := 0; sent < n; {
		k, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.headers[sent])), uintptr(n-sent), 0, 0, 0)
		if errno != 0 {
			k = 1
		}
		sent += int(k)
	}
}

func writeStamp(message *[messageSize]byte, s Stamp) {
	binary.LittleEndian.PutUint64(message[8:], s.Endpoint)
	binary.LittleEndian.PutUint64(message[16:], uint64(s.Asked))
}

func readStamp(message *[messageSize]byte) Stamp {
	return Stamp{binary.LittleEndian.Uint64(message[8:]), time.Duration(binary.LittleEndian.Uint64(message[16:]))}
}
