//go:build js

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing/synctest"
	"time"
)

// The ports of each host. Package net has one space of ports for both protocols in memory.
const tcpPort, udpPort = 8080, 9053

// slowness is how long a slow host takes for an answer. It accepts at once, so that no proxy can tell.
const slowness = 2 * time.Second

// A host is an endpoint: it answers with its name, over TCP and UDP.
type host struct {
	name string
	addr netip.Addr

	mu     sync.Mutex // guards the fields below
	state  string
	served int         // answers given
	open   []io.Closer // its sockets
}

// set makes it answer, refuse, be silent or be slow from now on. Its connections end, as those of a process that is killed.
func (h *host) set(state string) error {
	switch state {
	case "up", "refuses", "silent", "slow":
	default:
		return fmt.Errorf("%q is no state of an endpoint: it is up, refuses, silent or slow", state)
	}
	h.mu.Lock()
	for _, c := range h.open {
		c.Close()
	}
	h.state, h.open = state, nil
	h.mu.Unlock()
	if state == "refuses" {
		return nil
	}
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(h.addr, tcpPort)))
	if err != nil {
		return err
	}
	h.keep(listener)
	datagrams, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.addr, udpPort)))
	if err != nil {
		return err
	}
	h.keep(datagrams)
	if state == "silent" {
		return h.fillQueue()
	}
	go h.accept(listener)
	go h.receive(datagrams)
	return nil
}

// keep has a socket end with the present state.
func (h *host) keep(c io.Closer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, c)
}

// fillQueue fills the queue of a listener that nothing accepts from: a client that connects then hears nothing, as from a machine that has
// vanished. No time passes meanwhile.
func (h *host) fillQueue() error {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		connected := make(chan net.Conn, 1)
		go func() {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(h.addr, tcpPort).String())
			if err != nil {
				close(connected)
				return
			}
			connected <- conn
		}()
		synctest.Wait()
		select {
		case conn, ok := <-connected:
			cancel()
			if !ok {
				return errors.New("the queue of a silent endpoint does not fill")
			}
			h.keep(conn)
		default: // it is full
			cancel()
			return nil
		}
	}
}

// wait passes the time that an answer takes.
func (h *host) wait() {
	h.mu.Lock()
	slow := h.state == "slow"
	h.mu.Unlock()
	if slow {
		time.Sleep(slowness)
	}
}

// count counts an answer that was given.
func (h *host) count() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.served++
}

func (h *host) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // it was closed
		}
		h.keep(conn)
		go h.serve(conn)
	}
}

// serve answers each line of a connection until its client has finished.
func (h *host) serve(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		h.wait()
		if _, err := fmt.Fprintln(conn, h.name); err != nil {
			return
		}
		h.count()
	}
}

func (h *host) receive(conn *net.UDPConn) {
	buf := make([]byte, 1500)
	for {
		_, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return // it was closed
		}
		go func() {
			h.wait()
			if _, err := conn.WriteToUDPAddrPort([]byte(h.name), from); err == nil { // the client may have gone
				h.count()
			}
		}()
	}
}
