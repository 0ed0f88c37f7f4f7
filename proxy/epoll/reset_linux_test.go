package epoll

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
)

// A handTurned loop has a ring, and turns when the test has it turn.
type handTurned struct {
	*loop
	addr netip.AddrPort
}

// turnByHand makes a loop in front of one endpoint. It ends with the test, whose goroutine is locked to its thread.
func turnByHand(t *testing.T, handle func(*net.TCPConn)) *handTurned {
	t.Helper()
	proxytest.NothingLeaks(t)
	runtime.LockOSThread()
	e, err := NewRing(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	enginetest.Must(t, err)
	l, err := newRingLoop(0, &e.Base, &e.draining, false)
	enginetest.Must(t, err)
	enginetest.Must(t, l.ring.Enable())
	l.requests.AtRest = true // the test acts in its place, to open the port and to close it
	l.listeners.diallers = []*dialler{&l.dialler}
	h := &handTurned{loop: l, addr: proxytest.On(proxytest.FreePort(t))}
	endpoint := proxytest.ServeTCP(t, "127.0.0.1:0", handle)
	port, err := e.ListenBy(enginetest.TCPPort(h.addr.Port()), enginetest.OwnerOf(enginetest.NewRotation(endpoint.Addr)), l.listeners.open, nil)
	enginetest.Must(t, err)
	l.requests.AtRest = false
	t.Cleanup(func() {
		l.requests.AtRest = true
		port.Close()
		l.endAll(0)
		l.close()
		e.Drain(t.Context())
	})
	return h
}

// turnOnce has the loop do what there is to do now.
func (h *handTurned) turnOnce() {
	h.poller.Poll()
	h.turn.Begin()
	h.apportion()
	h.dealWithAll()
	h.relays.Proceed()
	h.expire()
	h.meetRequests()
}

// stateOf returns the state of a connection, as the kernel has it.
func stateOf(t *testing.T, fd int) uint8 {
	t.Helper()
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	enginetest.Must(t, err)
	return info.State
}

// A send through the ring takes the error of a reset, and a read by a system call finds a FIN from then on, before the loop has heard what came
// of the send.
func TestAResetThatASendHasTakenIsNoCleanEnd(t *testing.T) {
	const closed, closeWait = 7, 8 // of linux/tcp_states.h
	for _, way := range []struct {
		name   string
		answer int // bulk is received by system calls, and what is short by the ring
		state  uint8
		want   error
	}{
		{"a reset, received by calls", 1 << 20, closed, unix.ECONNRESET},
		{"a reset, received by the ring", 100, closed, unix.ECONNRESET},
		{"a FIN, received by calls", 1 << 20, closeWait, nil},
		{"a FIN, received by the ring", 100, closeWait, nil},
	} {
		t.Run(way.name, func(t *testing.T) {
			ends, hasEnded := make(chan struct{}), make(chan struct{})
			h := turnByHand(t, func(conn *net.TCPConn) {
				_, _ = conn.Write(make([]byte, way.answer))
				<-ends
				if way.state == closed {
					_ = conn.SetLinger(0)
					_ = conn.Close()
				} else {
					_ = conn.CloseWrite()
				}
				close(hasEnded)
				_, _ = io.Copy(io.Discard, conn)
			})
			client := proxytest.Dial(t, h.addr)
			answered, end := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := io.ReadFull(client, make([]byte, way.answer))
				close(answered)
				if err == nil {
					_, err = io.Copy(io.Discard, client)
				}
				end <- err
			}()
			turnUntil := func(is func() bool, what string) {
				t.Helper()
				proxytest.Eventually(t, func() bool { h.turnOnce(); return is() }, "%s", what)
			}
			turnUntil(func() bool { return isClosedChannel(answered) }, "the answer")
			h.turnOnce()
			var fds []int
			for c := range h.conns.All {
				fds = c.Descriptors()
			}
			_, err := client.Write([]byte("x"))
			enginetest.Must(t, err)
			close(ends)
			proxytest.Receive(t, hasEnded, "the end of the endpoint")
			proxytest.Eventually(t, func() bool {
				waits, err := unix.IoctlGetInt(fds[0], unix.SIOCINQ)
				enginetest.Must(t, err)
				return waits == 1 && stateOf(t, fds[1]) == way.state
			}, "both have arrived")
			var got error
			turnUntil(func() bool {
				select {
				case got = <-end:
					return true
				default:
					return false
				}
			}, "the end of the client")
			if !errors.Is(got, way.want) {
				t.Errorf("the client got %v; want %v", got, way.want)
			}
		})
	}
}
