//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/registry"
	"kubeproxy/scripts/torture/model"
)

// A datagram begins with the number of its flow, its own number and how many replies its sender wants; noise follows. A reply begins in the
// same way, with its number among the replies in the last place.
const datagramHead = 8 + 4 + 1

// A flowsOf is a UDP service, its endpoints and its clients.
type flowsOf struct {
	service
	header   bool // each datagram to an endpoint begins with a PROXY header
	calm     bool // its endpoints do not die
	kernel   bool // the kernel may carry it
	replies  int  // most that a client wants for a datagram
	newcomer int  // clients that are new in each round
	regulars []*flow
	flush    *flow // sends the datagram after which kube-proxy counts what its listener has lost
	places   []*place

	mu   sync.Mutex                  // guards the fields below
	now  model.Flows                 // what clients and endpoints have seen in this round
	last model.Flows                 // the same, with what was counted
	sent map[datagram]netip.AddrPort // by clients in this round
	old  map[datagram]netip.AddrPort // in the round before
	came map[datagram]int            // to endpoints, and in negative numbers: replies to clients
	due  map[datagram]int            // replies that endpoints sent
}

// A datagram names one that was sent.
type datagram struct {
	flow uint64
	seq  uint32
	kind byte // 0: of a client; else a reply: 1 and its number
}

// begin forgets what came before this round.
func (f *flowsOf) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = model.Flows{Service: f.name, Calm: f.calm, Kernel: f.kernel}
	f.old, f.sent, f.came, f.due = f.sent, make(map[datagram]netip.AddrPort), make(map[datagram]int), make(map[datagram]int)
}

// A place is an address where an endpoint of a service is, most of the time.
type place struct {
	of   *flowsOf
	addr netip.AddrPort
	conn *net.UDPConn // nil while it is dead
	done sync.WaitGroup
}

// revive starts the endpoint. A process that is being started has the sockets of this one, too, for a moment.
func (p *place) revive() error {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(p.addr))
	for deadline := time.Now().Add(readyIn); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(p.addr))
	}
	if err != nil {
		return err
	}
	_ = conn.SetReadBuffer(4 << 20) // the kernel gives what it may
	p.addr, p.conn = conn.LocalAddr().(*net.UDPAddr).AddrPort(), conn
	p.done.Go(func() { p.of.serve(conn) })
	return nil
}

// die ends the endpoint. What its socket still holds is lost.
func (p *place) die() {
	if p.conn != nil {
		p.conn.Close()
		p.done.Wait()
		p.conn = nil
	}
}

// serve answers datagrams until the socket is closed.
func (f *flowsOf) serve(conn *net.UDPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if n == len(checkQuestion) && string(buf[:n]) == checkQuestion { // an active check
			_, _ = conn.WriteToUDPAddrPort(buf[:n], from) // it is sent again
			continue
		}
		for i := range f.arrived(buf[:n]) {
			reply := buf[:n:n]
			if f.header {
				_, length, _ := proxyproto.Parse(reply, registry.UDP)
				reply = reply[length:]
			}
			reply[datagramHead-1] = byte(1 + i)
			f.reply(conn, from, reply)
		}
	}
}

const checkQuestion = "x"

// reply sends a reply, and notes it before it can arrive.
func (f *flowsOf) reply(conn *net.UDPConn, to netip.AddrPort, reply []byte) {
	d, _ := parse(reply)
	f.mu.Lock()
	f.due[d]++
	f.now.Replied++
	f.mu.Unlock()
	if _, err := conn.WriteToUDPAddrPort(reply, to); err != nil {
		f.mu.Lock()
		f.due[d]--
		f.now.Replied--
		f.mu.Unlock()
	}
}

// arrived notes a datagram at an endpoint, and returns how many replies are wanted.
func (f *flowsOf) arrived(text []byte) (replies int) {
	var h proxyproto.Header
	if f.header {
		var length int
		var err error
		if h, length, err = proxyproto.Parse(text, registry.UDP); err != nil || length == 0 {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.now.Arrived++
			f.strange("an endpoint", datagram{}, text)
			return 0
		}
		text = text[length:]
	}
	d, ok := parse(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	replies = int(d.kind)
	d.kind = 0
	if _, late := f.old[d]; late && ok && !f.calm {
		return 0 // it was sent in the round before, whose ledger does without what arrives late, or once more
	}
	f.now.Arrived++
	client, known := f.sent[d]
	switch {
	case !ok, !known, f.header && h.Source != client:
		f.strange("an endpoint", d, text)
		return 0
	case f.came[d] > 0:
		f.now.Again++
	}
	f.came[d]++
	return replies
}

// strange notes a datagram that was not sent to who has received it.
func (f *flowsOf) strange(who string, d datagram, text []byte) {
	f.now.Foreign++
	f.now.Strange = fmt.Sprintf("%s: flow %d, number %d, kind %d, %d bytes: %.40q", who, d.flow, d.seq, d.kind, len(text), text)
}

// answered notes a reply at a client.
func (f *flowsOf) answered(flow uint64, text []byte) {
	d, ok := parse(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Answered++
	f.came[d]++
	if !ok || d.kind == 0 || d.flow != flow || f.came[d] > f.due[d] {
		f.strange(fmt.Sprintf("client %d", flow), d, text)
	}
}

// parse reads a datagram; false: it is none, or a byte of it is not the one that was sent.
func parse(text []byte) (d datagram, ok bool) {
	if len(text) < datagramHead {
		return d, false
	}
	d = datagram{binary.BigEndian.Uint64(text), binary.BigEndian.Uint32(text[8:]), text[12]}
	return d, d.noise().differs(text[datagramHead:], datagramHead) < 0
}

func (d datagram) noise() stream { return stream(d.flow<<32 | uint64(d.seq)) }

// A flow is a client.
type flow struct {
	of     *flowsOf
	number uint64
	conn   *net.UDPConn
	seq    uint32
	done   sync.WaitGroup
}

// newFlow makes a client, and begins to read replies.
func newFlow(of *flowsOf, number uint64, from netip.Addr, to netip.AddrPort) (*flow, error) {
	conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	c := &flow{of: of, number: number, conn: conn}
	c.done.Go(func() {
		for buf := make([]byte, 64<<10); ; {
			n, err := conn.Read(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				of.answered(number, buf[:n])
			}
		}
	})
	return c, nil
}

func (c *flow) close() {
	c.conn.Close()
	c.done.Wait()
}

// send sends one datagram of so many bytes.
func (c *flow) send(size, replies int) error {
	c.seq++
	d := datagram{flow: c.number, seq: c.seq}
	text := binary.BigEndian.AppendUint64(make([]byte, 0, size), d.flow)
	text = append(binary.BigEndian.AppendUint32(text, d.seq), byte(replies))
	text = append(text, d.noise().at(datagramHead, size-datagramHead)...)
	f := c.of
	f.mu.Lock()
	f.sent[d] = c.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	f.now.Asked++
	f.mu.Unlock()
	_, err := c.conn.Write(text)
	if f.kernel && errors.Is(err, syscall.ECONNREFUSED) { // the kernel tells clients of endpoints that died
		f.mu.Lock()
		defer f.mu.Unlock()
		f.now.Asked--
		return nil
	}
	if err != nil {
		return fmt.Errorf("UDP service %s: a client could not send: %w", f.name, err)
	}
	return nil
}

// isHeard reports whether the last datagram of the flow has arrived.
func (c *flow) isHeard() bool {
	f := c.of
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.came[datagram{flow: c.number, seq: c.seq}] > 0
}

// talk sends some bursts.
func (c *flow) talk(r *rand.Rand) error {
	for range 1 + r.IntN(4) {
		most := 1 + r.IntN(32)
		size := []int{20, 200, 1400, 4000}[r.IntN(4)]
		if r.IntN(20) == 0 {
			size, most = 60000, 2
		}
		for range most {
			if err := c.send(datagramHead+r.IntN(size), r.IntN(c.of.replies+1)); err != nil {
				return err
			}
		}
		time.Sleep(time.Duration(r.IntN(int(40 * time.Millisecond))))
	}
	return nil
}
