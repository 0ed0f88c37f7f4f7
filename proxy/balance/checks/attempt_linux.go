package checks

import (
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"kubeproxy/registry"
)

// Supported reports whether this system has attempts.
const Supported = true

// An Attempt is one question to one address, under way. The zero value is not.
type Attempt struct {
	fd        int
	second    int // another socket, once there are two; see Repeat
	two       bool
	connected bool
	answer    []byte // as much as has come

	config tlsConfig
	tls    *exchange // over TLS, once the connection is there; it has the descriptor then
}

// Begin asks an address, with config over TLS if the question wants that. The attempt goes on until Proceed says otherwise, or until Close.
func Begin(q *Question, to netip.AddrPort, config tlsConfig) (Attempt, error) {
	fd, err := connect(q, to)
	if err != nil {
		return Attempt{}, err
	}
	a := Attempt{fd: fd, config: config}
	if q.Protocol == registry.UDP {
		if err := a.send(q, to); err != nil {
			a.Close()
			return Attempt{}, err
		}
	}
	return a, nil
}

// Repeat asks the address once more, since a packet may have been lost: over UDP by the same datagram, over TCP by a second connection while
// there is none. Linux itself repeats a SYN after 1 s (RFC 6298), when the time of many an attempt is up. Whichever connection is there first goes on.
// Repeat reports whether the attempt has another descriptor from now on.
func (a *Attempt) Repeat(q *Question, to netip.AddrPort) (another bool) {
	switch {
	case q.Protocol == registry.UDP:
		_ = a.send(q, to) // if it is refused, Proceed says so
	case !a.connected && !a.two:
		fd, err := connect(q, to)
		if err != nil {
			return false // the first one goes on
		}
		a.second, a.two = fd, true
		return true
	}
	return false
}

// connect begins to connect a socket with an address.
func connect(q *Question, to netip.AddrPort) (int, error) {
	kind, family := unix.SOCK_STREAM, unix.AF_INET
	if q.Protocol == registry.UDP {
		kind = unix.SOCK_DGRAM
	}
	var addr unix.Sockaddr = &unix.SockaddrInet4{Port: int(to.Port()), Addr: [4]byte{}}
	if ip := to.Addr().Unmap(); ip.Is4() {
		addr.(*unix.SockaddrInet4).Addr = ip.As4()
	} else {
		family = unix.AF_INET6
		addr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: ip.As16(), ZoneId: zoneID(ip)}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if q.Protocol == registry.TCP {
		// A closed connection leaves nothing behind: thousands of addresses every few seconds would fill the table of TIME_WAIT.
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // fails only for what is no socket
	}
	if err := unix.Connect(fd, addr); err != nil && err != unix.EINPROGRESS {
		_ = unix.Close(fd) // whatever it returns, the descriptor is free
		return -1, os.NewSyscallError("connect", err)
	}
	return fd, nil
}

// zoneID is the number of the interface that a link-local address belongs to; 0 for any other address.
func zoneID(ip netip.Addr) uint32 {
	if ip.Zone() == "" {
		return 0
	}
	i, err := net.InterfaceByName(ip.Zone())
	if err != nil {
		return 0 // connecting fails then, and says why
	}
	return uint32(i.Index)
}

// Close ends an attempt.
func (a *Attempt) Close() {
	a.closeSecond()
	if a.tls != nil {
		a.tls.close()
		return
	}
	_ = unix.Close(a.fd) // whatever it returns, the descriptor is free
}

func (a *Attempt) closeSecond() {
	if a.two {
		_ = unix.Close(a.second) // likewise
		a.two = false
	}
}

// send sends what comes before TLS, or all there is without it. It fits into the buffer of a new socket.
func (a *Attempt) send(q *Question, to netip.AddrPort) error {
	a.connected = true
	if opening := q.opening(to); opening != "" {
		if err := unix.Send(a.fd, []byte(opening), unix.MSG_NOSIGNAL); err != nil {
			return os.NewSyscallError("send", err)
		}
	}
	return nil
}

// Proceed goes on with an attempt that a [Poller] has found ready. When it is done, err says whether the address answered, and the attempt
// is closed.
func (a *Attempt) Proceed(q *Question, to netip.AddrPort) (done bool, err error) {
	defer func() {
		if done {
			a.Close()
		}
	}()
	if !a.connected {
		code, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			return true, os.NewSyscallError("getsockopt", err)
		case code != 0:
			return true, os.NewSyscallError("connect", unix.Errno(code))
		}
		a.closeSecond()
		if err := a.send(q, to); err != nil {
			return true, err
		}
		if q.TLS != registry.CheckPlain {
			a.startTLS(q, to)
			return false, nil
		}
		return q.Path == "", nil
	}
	if a.tls != nil {
		return a.tls.end()
	}
	var buffer [4 << 10]byte
	n, _, err := unix.Recvfrom(a.fd, buffer[:], 0)
	switch {
	case err == unix.EAGAIN:
		return false, nil
	case err != nil:
		return true, os.NewSyscallError("recv", err)
	case n == 0 && q.Protocol == registry.TCP:
		return true, errClosed
	}
	a.answer = append(a.answer, buffer[:n]...)
	return q.judge(a.answer)
}

// A Poller finds out which attempts can go on.
type Poller struct {
	fds   []unix.PollFd
	first []int // where those of each attempt begin
}

// Look reports of each of some attempts whether it can go on. It waits for nothing.
func (p *Poller) Look(attempts []*Attempt) (ready func(i int) bool) {
	p.fds, p.first = slices.Grow(p.fds[:0], len(attempts)), slices.Grow(p.first[:0], len(attempts))
	for _, a := range attempts {
		events := int16(unix.POLLOUT)
		if a.connected {
			events = unix.POLLIN
		}
		fd := int32(a.fd)
		if a.tls != nil {
			fd = -1 // which poll leaves out
		}
		p.first = append(p.first, len(p.fds))
		if p.fds = append(p.fds, unix.PollFd{Fd: fd, Events: events}); a.two {
			p.fds = append(p.fds, unix.PollFd{Fd: int32(a.second), Events: events})
		}
	}
	if _, err := unix.Poll(p.fds, 0); err != nil { // a signal, or no memory: none is ready yet
		clear(p.fds)
	}
	for i, a := range attempts {
		if at := p.first[i]; a.two && p.fds[at].Revents == 0 && p.fds[at+1].Revents != 0 {
			a.fd, a.second = a.second, a.fd // Proceed goes on with fd
			p.fds[at].Revents = p.fds[at+1].Revents
		}
	}
	return func(i int) bool {
		return p.fds[p.first[i]].Revents != 0 || attempts[i].tls != nil && attempts[i].tls.hasEnded()
	}
}
