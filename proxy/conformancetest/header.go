package conformancetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What endpoints see of the PROXY header that their service asks for.

// headed says that a service offers one port, and that its endpoints get a header.
func headed(name string, version registry.ProxyHeader, port registry.Port) change {
	return func(b *registry.Batch) {
		service(name, port)(b)
		b.Services[named(name)].SetTerms(registry.Terms{ProxyHeader: version})
	}
}

// readHeader reads the header that a connection begins with, and nothing after it.
func readHeader(conn io.Reader) (h proxyproto.Header, err error) {
	var b []byte
	for next := make([]byte, 1); ; {
		if _, err := io.ReadFull(conn, next); err != nil {
			return h, err
		}
		b = append(b, next...)
		if h, n, err := proxyproto.Parse(b, registry.TCP); n > 0 || err != nil {
			return h, err
		}
	}
}

// A heard is what an endpoint was told of one client.
type heard struct {
	proxyproto.Header
	err error
}

// headedServer starts an endpoint that reads a header from each connection, passes it on, and serves the rest.
func headedServer(t *testing.T, serve func(*net.TCPConn)) (at registry.Addr, headers <-chan heard) {
	t.Helper()
	c := make(chan heard, 100)
	return served(t, func(conn *net.TCPConn) {
		h, err := readHeader(conn)
		c <- heard{h, err}
		serve(conn)
	}), c
}

// versions are those of the header.
var versions = []registry.ProxyHeader{registry.ProxyV1, registry.ProxyV2}

// addressOf is one end of a connection as headers have it.
func addressOf(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// expect fails the test unless the endpoint was told of a client.
func (h heard) expect(t *testing.T, client net.Conn) {
	t.Helper()
	if want := (proxyproto.Header{Source: addressOf(client.LocalAddr()), Destination: addressOf(client.RemoteAddr())}); h.Header != want || h.err != nil {
		t.Errorf("the endpoint was told of %+v, %v; want %+v", h.Header, h.err, want)
	}
}

func (s suite) TestAnEndpointIsToldOfItsClientBeforeTheClientSaysAnything(t *testing.T) {
	for _, version := range versions {
		t.Run(version.String(), func(t *testing.T) {
			n := newNode(t, s.config())
			at, headers := headedServer(t, proxytest.Chat("web"))
			port := proxytest.FreePort(t)
			n.apply(headed("web", version, tcp(port)), endpoints("web", at))

			silent := proxytest.Dial(t, proxytest.On(port)) // until the endpoint knows of it
			proxytest.Receive(t, headers, "the header of a silent client").expect(t, silent)
			if _, err := io.WriteString(silent, "one\n"); err != nil {
				t.Fatal(err)
			}
			if answer, err := bufio.NewReader(silent).ReadString('\n'); answer != "web: one\n" || err != nil {
				t.Errorf("the silent client was answered %q, %v", answer, err)
			}
			talk := proxytest.TalkTo(t, proxytest.On(port))
			talk.MustSay(t, "two")
			proxytest.Receive(t, headers, "the header of another client").expect(t, talk.Conn)
			silent.Close()
			talk.Conn.Close()
			proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Active == 0 }, "the clients to end")
			if got := totalsOf(n, "web"); got.Sent != 8 || got.Received != 18 {
				t.Errorf("%d bytes were sent and %d received; want 8 and 18: headers do not count", got.Sent, got.Received)
			}
		})
	}
}

func (s suite) TestAnEndpointThatSpeaksFirstIsToldOfItsClient(t *testing.T) {
	n := newNode(t, s.config())
	at, headers := headedServer(t, proxytest.Identify("greeting"))
	port := proxytest.FreePort(t)
	n.apply(headed("mail", registry.ProxyV1, tcp(port)), endpoints("mail", at))
	for range 10 {
		client := proxytest.Dial(t, proxytest.On(port))
		if answer, err := io.ReadAll(client); string(answer) != "greeting" || err != nil {
			t.Errorf("a client read %q, %v", answer, err)
		}
		proxytest.Receive(t, headers, "a header").expect(t, client)
	}
}

// The header belongs to the attempt, and what the client said to the client: both reach the endpoint that answers, once and in order.
func (s suite) TestEachAttemptBeginsWithAHeader(t *testing.T) {
	cfg := s.config()
	cfg.DialTimeout = 5 * time.Second
	n := newNode(t, cfg)
	at, headers := headedServer(t, func(conn *net.TCPConn) {
		question, err := io.ReadAll(conn)
		fmt.Fprintf(conn, "%s %v", question, err)
	})
	for _, first := range []struct {
		name string
		at   registry.Addr
	}{{"refuses", proxytest.Refusing(t)}, {"is silent", proxytest.BlackHole(t)}} {
		for _, version := range versions {
			t.Run("the first "+first.name+", "+version.String(), func(t *testing.T) {
				port := proxytest.FreePort(t)
				n.apply(noService("web"), endpoints("web"))
				n.apply(headed("web", version, tcp(port)), endpoints("web", first.at, at))
				for range 2 {
					client := proxytest.Dial(t, proxytest.On(port))
					if _, err := io.WriteString(client, "question"); err != nil {
						t.Fatal(err)
					}
					client.CloseWrite()
					if answer, err := io.ReadAll(client); string(answer) != "question <nil>" || err != nil {
						t.Errorf("got %q, %v; want the question repeated", answer, err)
					}
					proxytest.Receive(t, headers, "a header").expect(t, client)
				}
			})
		}
	}
}

func (s suite) TestAClientThatFinishesAtOnceIsIntroducedAndHasFinished(t *testing.T) {
	n := newNode(t, s.config())
	at, headers := headedServer(t, func(conn *net.TCPConn) {
		rest, err := io.ReadAll(conn)
		fmt.Fprintf(conn, "%d more bytes, %v", len(rest), err)
	})
	port := proxytest.FreePort(t)
	n.apply(headed("web", registry.ProxyV2, tcp(port)), endpoints("web", at))
	client := proxytest.Dial(t, proxytest.On(port))
	client.CloseWrite()
	if answer, err := io.ReadAll(client); string(answer) != "0 more bytes, <nil>" || err != nil {
		t.Errorf("got %q, %v", answer, err)
	}
	proxytest.Receive(t, headers, "a header").expect(t, client)
}

func (s suite) TestAStreamBehindAHeaderArrivesWhole(t *testing.T) {
	n := newNode(t, s.config())
	up, down := proxytest.Stream{Seed: 3, Size: 8 << 20}, proxytest.Stream{Seed: 4, Size: 8 << 20}
	ends := make(chan error, 1)
	at, headers := headedServer(t, func(conn *net.TCPConn) {
		sent := make(chan error, 1)
		go func() {
			err := down.SendTo(conn)
			conn.CloseWrite()
			sent <- err
		}()
		err := up.ReceiveAllFrom(conn)
		if sendErr := <-sent; err == nil {
			err = sendErr
		}
		ends <- err
	})
	port := proxytest.FreePort(t)
	n.apply(headed("web", registry.ProxyV1, tcp(port)), endpoints("web", at))
	client := proxytest.Dial(t, proxytest.On(port))
	sent := make(chan error, 1)
	go func() {
		err := up.SendTo(client)
		client.CloseWrite()
		sent <- err
	}()
	if err := down.ReceiveAllFrom(client); err != nil {
		t.Error(err)
	}
	for _, c := range []<-chan error{sent, ends} {
		if err := proxytest.Receive(t, c, "the end of a stream"); err != nil {
			t.Error(err)
		}
	}
	proxytest.Receive(t, headers, "a header").expect(t, client)
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Active == 0 }, "the client to end")
	if got := totalsOf(n, "web"); got.Sent != uint64(up.Size) || got.Received != uint64(down.Size) {
		t.Errorf("%d bytes were sent and %d received; want %d and %d", got.Sent, got.Received, up.Size, down.Size)
	}
}

// headedUDP starts an endpoint that answers with the client that it was told of, and the rest.
func headedUDP(t *testing.T, name string) *proxytest.UDPServer {
	t.Helper()
	return proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, _ netip.AddrPort) []byte {
		h, n, err := proxyproto.Parse(payload, registry.UDP)
		return fmt.Appendf(nil, "%s: %v %v %v %q", name, h.Source, h.Destination, err, payload[n:])
	})
}

func (s suite) TestEachDatagramBearsAHeader(t *testing.T) {
	n := newNode(t, s.config())
	one, two := headedUDP(t, "1"), headedUDP(t, "2")
	port := proxytest.FreePort(t)
	n.apply(headed("dns", registry.ProxyV2, udp(port)), endpoints("dns", one.Addr))
	client := proxytest.DialUDP(t, proxytest.On(port))
	ask := func(question, by string) {
		t.Helper()
		answer, err := client.Exchange([]byte(question))
		if want := fmt.Sprintf("%s: %v %v <nil> %q", by, client.LocalAddr(), proxytest.On(port), question); string(answer) != want || err != nil {
			t.Fatalf("answered %q, %v; want %q", answer, err, want)
		}
	}
	ask("first", "1")
	ask("", "1")
	ask("third", "1")
	n.apply(endpoints("dns", two.Addr))
	ask("after a move", "2")
	two.Close() // the next endpoint gets what this one refuses
	n.apply(endpoints("dns", two.Addr, one.Addr))
	ask("after a refusal", "1")
	const all, last = uint64(len("first" + "third" + "after a move" + "after a refusal")), uint64(len("after a refusal"))
	if got := totalsOf(n, "dns"); got.Sent != all && got.Sent != all+last { // the kernel reports the refusal after it took the datagram
		t.Errorf("%d bytes were sent; want %d, or %d more: headers do not count", got.Sent, all, last)
	}
}

func (s suite) TestADatagramThatHasNoRoomForAHeaderIsDroppedAsTooLong(t *testing.T) {
	n := newNode(t, s.config())
	one := headedUDP(t, "1")
	port := proxytest.FreePort(t)
	n.apply(headed("dns", registry.ProxyV2, udp(port)), endpoints("dns", one.Addr))
	client := proxytest.DialUDP(t, proxytest.On(port))
	if _, err := client.Write(make([]byte, proxytest.MaxDatagram)); err != nil {
		t.Fatal(err)
	}
	proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Dropped[traffic.DropTooLong] == 1 }, "the datagram to be dropped")
	if one.Received() > 0 {
		t.Errorf("the endpoint received it")
	}
}

// The first version has no form for datagrams.
func (s suite) TestTheFirstVersionLeavesDatagramsAsTheyAre(t *testing.T) {
	n := newNode(t, s.config())
	port := proxytest.FreePort(t)
	n.apply(headed("dns", registry.ProxyV1, udp(port)), endpoints("dns", servedUDP(t, "1")))
	if a := proxytest.DialUDP(t, proxytest.On(port)).Ask(t); a.Name != "1" {
		t.Errorf("answered by %q", a.Name)
	}
}
