package main

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"time"

	"kubeproxy/scripts/school/peer"
)

// The judges of UDP: stages 11 and 12.

// client returns a connected UDP socket: a client of a port.
func (t *trial) client(port int) net.Conn {
	conn, err := net.Dial("udp", address(port))
	t.must(err)
	t.atEnd(func() { conn.Close() })
	return conn
}

// served waits until one datagram is answered.
func (t *trial) served(port int, limit time.Duration) {
	t.do(peer.DatagramByHand(port, 5), "wait until a datagram to port %d is answered", port)
	conn := t.client(port)
	t.soon(limit, "an answer", func() error {
		_, err := peer.Datagram(conn, "hello")
		return err
	})
}

// largest is the largest datagram that a judge sends. macOS sends none of more than 9216 bytes unless it is told to.
func largest() int {
	if runtime.GOOS == "darwin" {
		return 9000
	}
	return 60_000
}

func judgeSession(t *trial) {
	red, green, blue := t.named("red"), t.named("green"), t.named("blue")
	dns := t.datagramService("dns", red.Addr, green.Addr, blue.Addr)
	t.start(0)
	t.served(dns.port, startLimit)
	given := make(map[string]int)
	for i := range 12 {
		t.do(peer.DatagramByHand(dns.port, 5), "client %d of port %d sends three datagrams", i+1, dns.port)
		conn, first := t.client(dns.port), ""
		for j := range 3 {
			name, err := peer.Datagram(conn, fmt.Sprintf("datagram %d", j+1))
			switch {
			case err != nil:
				t.fail("an answer to each datagram", "%v, after 10 attempts", err)
			case first == "":
				first = name
			case name != first:
				t.fail("answers by one endpoint", "%s, then %s", first, name)
			}
		}
		given[first]++
	}
	if len(given) != 3 || given["red"] != 4 || given["green"] != 4 {
		t.fail("four clients for each of three endpoints", "%v", given)
	}
	n := largest()
	t.do(peer.DatagramByHand(dns.port, n), "a client of port %d sends datagrams of %d bytes", dns.port, n)
	if name, err := peer.Datagram(t.client(dns.port), strings.Repeat("x", n-40)); err != nil {
		t.fail("the same datagram back", "%v, after 10 attempts", err)
	} else {
		t.say("  %s sends it back whole", name)
	}
}

func judgeMove(t *trial) {
	red, green := t.named("red"), t.named("green")
	dns := t.datagramService("dns", red.Addr, green.Addr)
	t.start(0)
	t.served(dns.port, startLimit)
	conn := t.client(dns.port)
	t.do(peer.DatagramByHand(dns.port, 5), "a client of port %d sends a datagram", dns.port)
	was, err := peer.Datagram(conn, "hello")
	if err != nil {
		t.fail("an answer", "%v, after 10 attempts", err)
	}
	stays := red
	if was == red.Name {
		stays = green
	}
	dns.endpoints(stays.Addr)
	t.do(peer.DatagramByHand(dns.port, 5), "wait until datagrams of the same client of port %d are answered by %s", dns.port, stays.Name)
	t.soon(changeLimit, "answers by "+stays.Name, func() error {
		name, err := peer.Datagram(conn, "again")
		if err == nil && name != stays.Name {
			err = fmt.Errorf("an answer by %s, which has left the record", name)
		}
		return err
	})
}
