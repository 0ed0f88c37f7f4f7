//go:build js

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// A client is one TCP connection to a node, or one UDP socket that goes on sending from the same port.
type client struct {
	Name     string   `json:"name"`
	Protocol string   `json:"protocol"`
	Node     string   `json:"node"`
	Port     int      `json:"port"`
	Addr     string   `json:"addr"`
	State    string   `json:"state"`   // waits, served, gone, refused
	Answers  []string `json:"answers"` // who answered: the name of an endpoint for each
	Took     float64  `json:"took"`    // milliseconds until the last answer, or until the end
	Sent     int      `json:"sent"`    // UDP: datagrams

	mu   sync.Mutex // guards the fields that change, all but the first five
	conn net.Conn   // UDP; belongs to the goroutine that obeys
	at   time.Time  // of the last datagram
}

// show returns a copy for the page.
func (c *client) show() *client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &client{Name: c.Name, Protocol: c.Protocol, Node: c.Node, Port: c.Port, Addr: c.Addr,
		State: c.State, Answers: append([]string{}, c.Answers...), Took: c.Took, Sent: c.Sent}
}

// clientsKept is how many TCP clients are shown at most: the last ones.
const clientsKept = 60

// newClient notes a client, and gives it an address of its own.
func (w *world) newClient(protocol string, n *node, port int, name string) *client {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.came++
	if name == "" {
		name = fmt.Sprint(w.came)
	}
	local := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 77, 3, byte(1 + w.came%250)}), uint16(40000+w.came%20000))
	c := &client{Name: name, Protocol: protocol, Node: n.name, Port: port, Addr: local.String(), State: "waits"}
	if len(w.clients) == clientsKept {
		w.clients = w.clients[1:]
	}
	w.clients = append(w.clients, c)
	return c
}

// ends notes how a client fared.
func (c *client) ends(w *world, began time.Time, state, format string, args ...any) {
	c.mu.Lock()
	c.State, c.Took = state, milliseconds(time.Since(began))
	c.mu.Unlock()
	w.event("client", "client %s at %s port %d: %s", c.Name, c.Node, c.Port, fmt.Sprintf(format, args...))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// connect has a client connect, ask, stay for a while after the answer, and finish.
func (w *world) connect(n *node, port int, hold time.Duration) {
	c := w.newClient("TCP", n, port, "")
	began := time.Now()
	go func() {
		conn, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.Addr)), net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.addr, uint16(port))))
		if err != nil {
			c.ends(w, began, "refused", "refused: no socket listens there")
			return
		}
		defer conn.Close()
		_, err = fmt.Fprintln(conn, "who are you?")
		answer := ""
		if err == nil {
			answer, err = bufio.NewReader(conn).ReadString('\n')
		}
		if err != nil {
			c.ends(w, began, "refused", "the connection ended without an answer after %v", time.Since(began))
			return
		}
		c.mu.Lock()
		c.Answers = append(c.Answers, strings.TrimSpace(answer))
		c.mu.Unlock()
		c.ends(w, began, "served", "%s answered after %v", strings.TrimSpace(answer), time.Since(began))
		time.Sleep(hold)
		if conn.CloseWrite() == nil { // the client is the first to finish, always
			_, _ = io.Copy(io.Discard, conn)
		}
		c.mu.Lock()
		c.State = "gone"
		c.mu.Unlock()
	}()
}

// send has a client send one datagram, from the socket of its first one.
func (w *world) send(n *node, port int, name string) error {
	if name == "" {
		return errors.New("a datagram needs a client who sends it")
	}
	key := fmt.Sprint(name, " ", n.name, " ", port)
	c := w.senders[key]
	if c == nil {
		c = w.newClient("UDP", n, port, name)
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(c.Addr)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.addr, uint16(port))))
		if err != nil {
			return err
		}
		c.conn = conn
		w.senders[key] = c
		go c.receive(w, conn)
	}
	c.mu.Lock()
	c.State, c.at = "waits", time.Now()
	c.Sent++
	c.mu.Unlock()
	if _, err := c.conn.Write([]byte("who are you?")); err != nil {
		c.ends(w, c.at, "refused", "the datagram was refused: no socket is bound there")
	}
	return nil
}

func (c *client) receive(w *world, conn net.Conn) {
	buf := make([]byte, 1500)
	for {
		k, err := conn.Read(buf)
		if err != nil {
			return
		}
		c.mu.Lock()
		c.Answers = append(c.Answers, string(buf[:k]))
		at := c.at
		c.mu.Unlock()
		c.ends(w, at, "served", "%s answered a datagram after %v", buf[:k], time.Since(at))
	}
}
