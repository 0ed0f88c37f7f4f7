package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"kubeproxy/scripts/school/peer"
	"kubeproxy/scripts/school/store"
)

// The judges of the advanced stages: 20 to 24.

// judgeLoop judges with two numbers of descriptors, as judgeDescriptors: a program that connects to itself runs out of them in accept with one
// number, and then its client waits for ever. A datagram to itself takes all of them with either.
func judgeLoop(t *trial) {
	red := t.named("red")
	web, dns := t.service("web", red.Addr), t.datagramService("dns", red.Addr)
	self, mixed, echo := t.service("self"), t.service("mixed"), t.datagramService("echo")
	self.endpoints(address(self.port))
	mixed.endpoints(address(mixed.port), red.Addr)
	echo.endpoints(address(echo.port))
	one, two := t.service("one"), t.service("two")
	one.endpoints(address(two.port))
	two.endpoints(address(one.port))
	for _, descriptors := range []int{64, 65} {
		t.start(descriptors)
		t.answered(web.port, startLimit, "red")
		t.answered(mixed.port, changeLimit, "red")
		for _, loop := range []*service{self, one, two} {
			t.turnedAway(loop.port, changeLimit)
			t.asks(web.port, "red")
		}
		t.served(dns.port, changeLimit)
		t.do(peer.DatagramByHand(echo.port, 5), "a client of port %d, whose endpoint is this port itself, sends datagrams", echo.port)
		conn := t.client(echo.port)
		for range 5 { // nobody answers, and each has its time to go round
			t.must(conn.SetDeadline(time.Now().Add(100 * time.Millisecond)))
			_, _ = conn.Write([]byte("hello"))
			_, _ = conn.Read(make([]byte, 9))
		}
		for range 5 {
			t.asks(web.port, "red")
		}
		t.program.close()
		t.program = nil
		t.refused(web.port)
	}
}

// clientAtByHand is a client over UDP of an address.
func clientAtByHand(family, host string, port int) string {
	return peer.Python(`c = socket.socket(socket.%s, socket.SOCK_DGRAM); c.settimeout(5); c.connect(("%s", %d)); c.send(b"hello"); print(c.recv(99))`, family, host, port)
}

func judgeReplyAddress(t *trial) {
	hosts := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
	red := t.named("red")
	dns := t.datagramService("dns", red.Addr)
	t.bind = "0.0.0.0"
	t.start(0)
	t.served(dns.port, startLimit)
	for _, host := range hosts {
		t.do(clientAtByHand("AF_INET", host, dns.port), "a client sends datagrams to %s, and takes answers from there only", host)
		conn, err := net.Dial("udp", net.JoinHostPort(host, itoa(dns.port)))
		t.must(err)
		t.atEnd(func() { conn.Close() })
		if _, err := peer.Datagram(conn, "hello"); err != nil {
			t.fail("an answer from "+host, "%v from there, after 10 attempts", err)
		}
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	t.must(err)
	t.atEnd(func() { conn.Close() })
	for range 3 {
		for _, host := range hosts {
			t.do(clientAtByHand("AF_INET", host, dns.port), "one client sends datagrams to %s in turn, from one socket; now to %s", strings.Join(hosts, ", "), host)
			t.soon(patience, "an answer from "+host, func() error { return peer.AnsweredFrom(conn, &net.UDPAddr{IP: net.ParseIP(host), Port: dns.port}) })
		}
	}
}

func judgeRotation(t *trial) {
	red, green, blue, gold := t.named("red"), t.named("green"), t.named("blue"), t.named("gold")
	three := []string{"red", "green", "blue"}
	web := t.service("web", red.Addr, green.Addr, blue.Addr)
	t.start(0)
	t.answered(web.port, startLimit, three...)
	var given []string
	for i := range 8 {
		names := three
		if i%2 == 0 {
			web.endpoints(red.Addr, green.Addr, blue.Addr, gold.Addr)
			names = append(slices.Clone(three), "gold")
		} else {
			web.endpoints(red.Addr, green.Addr, blue.Addr)
		}
		t.settled(changeLimit, red, green)
		given = append(given, t.asks(web.port, names...))
		if i > 0 && given[i] == given[i-1] {
			t.fail("another endpoint after each change", "%v", given)
		}
	}
	for _, name := range three {
		if !slices.Contains(given, name) {
			t.fail("a turn for red, green and blue", "%v", given)
		}
	}
	for i := range 6 { // the first of the list goes and comes, so all others move
		names := three
		if i%2 == 0 {
			web.endpoints(green.Addr, blue.Addr)
			names = three[1:]
		} else {
			web.endpoints(red.Addr, green.Addr, blue.Addr)
		}
		t.settled(changeLimit, red, green)
		if given = append(given, t.asks(web.port, names...)); given[len(given)-1] == given[len(given)-2] {
			t.fail("another endpoint after each change", "%v", given)
		}
	}
}

func judgeResync(t *trial) {
	const limit = time.Minute // the promise is half of it
	red, green := t.named("red"), t.named("green")
	web := t.service("web", red.Addr)
	at := address(t.port())
	g, err := store.NewGateway(t.records.(store.Server), at, 0, nil)
	t.must(err)
	t.atEnd(g.Close)
	t.say("your program reaches etcd at %s", at)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	t.settled(changeLimit, red, green) // by now it watches
	t.say("the connections that your program has to etcd, %d until now, carry nothing any more, and stay open; new ones work", g.Deafen())
	web.endpoints(green.Addr)
	t.answered(web.port, limit, "green")
}

func judgeDualStack(t *trial) {
	red := t.named("red")
	green := peer.NewEndpoint("green", fmt.Sprintf("[::1]:%d", t.port()), peer.Echo("green"))
	t.must(green.Open())
	t.atEnd(green.Close)
	t.say("endpoint green answers at %s", green.Addr)
	t.bind = "0.0.0.0"
	web := map[string]*service{"red": t.service("web4", red.Addr), "green": t.service("web6", green.Addr)}
	dns := map[string]*service{"red": t.datagramService("dns4", red.Addr), "green": t.datagramService("dns6", green.Addr)}
	t.start(0)
	for _, name := range []string{"red", "green"} {
		for host, family := range map[string]string{"127.0.0.1": "AF_INET", "::1": "AF_INET6"} {
			at := net.JoinHostPort(host, itoa(web[name].port))
			t.do(peer.Python(`c = socket.create_connection(("%s", %d), 10); print(c.recv(99))`, host, web[name].port), "wait until a client of %s is answered by %s", at, name)
			t.soon(startLimit, anyOf([]string{name}), func() error {
				_, err := peer.Ask(at, patience)
				return err
			})
			at = net.JoinHostPort(host, itoa(dns[name].port))
			t.do(clientAtByHand(family, host, dns[name].port), "wait until a datagram to %s is answered by %s", at, name)
			conn, err := net.Dial("udp", at)
			t.must(err)
			t.atEnd(func() { conn.Close() })
			t.soon(startLimit, anyOf([]string{name}), func() error {
				_, err := peer.Datagram(conn, "hello")
				return err
			})
		}
	}
}
