package conformancetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/proxytest"
	rules "kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Clients that come by another proxy, which says who they are.

// loopbackRange is where other proxies are in these tests: clients at 127.0.0.1. Those at 127.0.0.2 are elsewhere.
var loopbackRange = []netip.Prefix{netip.PrefixFrom(proxytest.Loopback, 32)}

var elsewhere = netip.MustParseAddr("127.0.0.2")

// stranger is a client of another proxy.
var stranger = proxyproto.Header{Source: netip.MustParseAddrPort("192.0.2.1:4711"), Destination: netip.MustParseAddrPort("198.51.100.7:443")}

// introducing is a node in front of which there are other proxies.
func (s suite) introducing(t *testing.T, log *ended, change func(*proxy.Config)) *node {
	t.Helper()
	cfg := s.config()
	cfg.ProxyProtocolFrom = loopbackRange
	cfg.Ended = log.note
	if change != nil {
		change(&cfg)
	}
	return newNode(t, cfg)
}

// headerOf is the header of version 1 that another proxy sends.
func headerOf(h proxyproto.Header) string {
	return string(proxyproto.Append(nil, registry.ProxyV1, h.Source, h.Destination))
}

func (s suite) TestAClientWhoseHeaderIsAwaitedIsEndedWhenItIsKilled(t *testing.T) {
	var log ended
	n := s.introducing(t, &log, nil)
	at := tcpThrough(t, n, served(t, proxytest.Chat("web")))
	conn := proxytest.Dial(t, at)
	n.waitFor("web", 1)
	n.killsWhoHasNoEndpoint(t, conn)
}

func (s suite) TestAClientIsWhoTheProxyBeforeItSays(t *testing.T) {
	second := string(proxyproto.Append(nil, registry.ProxyV2, stranger.Source, stranger.Destination))
	for _, c := range []struct {
		name, header string
		isKnown      bool
		tlvs         string
	}{
		{"version 1", headerOf(stranger), true, ""},
		{"version 2", second, true, ""},
		{"version 2 with padding", withTLVs(second, "\x04\x00\x02ab"), true, ""},
		{"version 2 with extensions", withTLVs(second, "\x01\x00\x02h2\x02\x00\x05db.ex"), true, "alpn=h2 authority=db.ex"},
		{"version 2 of 9,000 bytes", withExtensions(second, 9000), true, ""},
		{"version 2, the longest", withExtensions(second, proxyproto.MaxHeader), true, ""},
		{"version 1, unknown", "PROXY UNKNOWN\r\n", false, ""},
		{"a connection of the proxy's own", string(proxyproto.AppendLocal(nil, registry.ProxyV2, registry.TCP)), false, ""},
	} {
		for _, piecewise := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, piecewise %v", c.name, piecewise), func(t *testing.T) {
				var log ended
				n := s.introducing(t, &log, nil)
				at, headers := headedServer(t, func(conn *net.TCPConn) {
					question, err := io.ReadAll(conn)
					fmt.Fprintf(conn, "%s %v", question, err)
				})
				port := proxytest.FreePort(t)
				n.apply(headed("web", registry.ProxyV2, tcp(port)), endpoints("web", at))
				client := proxytest.Dial(t, proxytest.On(port))
				client.SetNoDelay(true)
				size := len(c.header) + len("question")
				if piecewise {
					size = max(len(c.header)/100, 1)
				}
				for piece := range slices.Chunk([]byte(c.header+"question"), size) {
					if _, err := client.Write(piece); err != nil {
						t.Fatal(err)
					}
				}
				client.CloseWrite()
				if answer, err := io.ReadAll(client); string(answer) != "question <nil>" || err != nil {
					t.Errorf("got %q, %v; want the question repeated", answer, err)
				}
				own := addressOf(client.LocalAddr())
				want, wantVia := stranger, own
				if !c.isKnown {
					want, wantVia = proxyproto.Header{Source: own, Destination: proxytest.On(port)}, netip.AddrPort{}
				}
				if got := proxytest.Receive(t, headers, "a header"); got != (heard{Header: want}) {
					t.Errorf("the endpoint was told of %+v; want %+v", got, want)
				}
				e := log.of(t, registry.TCP, 1)[0]
				if e.Client != want.Source || e.Via != wantVia || e.TLVs != c.tlvs || e.Sent != 8 || e.Received != 14 {
					t.Errorf("the log has %+v; want client %v by %v, %q, 8 bytes sent and 14 received", e, want.Source, wantVia, c.tlvs)
				}
			})
		}
	}
}

// withTLVs is a header of version 2 that is followed by extensions.
func withTLVs(header, tlvs string) string {
	const fixed = 16
	b := binary.BigEndian.AppendUint16([]byte(header[:fixed-2]), uint16(len(header)+len(tlvs)-fixed))
	return string(b) + header[fixed:] + tlvs
}

// withExtensions is a header of version 2 that is made longer by a TLV that means nothing, to n bytes.
func withExtensions(header string, n int) string {
	const fixed = 16
	b := binary.BigEndian.AppendUint16([]byte(header[:fixed-2]), uint16(n-fixed))
	b = append(append(b, header[fixed:]...), 0x04)
	b = binary.BigEndian.AppendUint16(b, uint16(n-len(header)-3))
	return string(append(b, make([]byte, n-len(b))...))
}

// Who is not in the ranges can write what it likes: it is the client, and its bytes are the endpoint's.
func (s suite) TestAHeaderFromElsewhereIsNeverBelieved(t *testing.T) {
	proxytest.NeedsAddresses(t, elsewhere.String())
	for _, version := range versions {
		t.Run(version.String(), func(t *testing.T) {
			var log ended
			n := s.introducing(t, &log, nil)
			port := proxytest.FreePort(t)
			n.apply(from("web", port, "127.0.0.0/8"), endpoints("web", served(t, func(conn *net.TCPConn) {
				all, _ := io.ReadAll(conn)
				conn.Write(all)
			})))
			client := dialFrom(t, elsewhere, proxytest.On(port))
			said := string(proxyproto.Append(nil, version, stranger.Source, stranger.Destination)) + "question"
			io.WriteString(client, said)
			client.CloseWrite()
			if answer, err := io.ReadAll(client); string(answer) != said || err != nil {
				t.Errorf("got %q, %v; want all of it repeated", answer, err)
			}
			if e := log.of(t, registry.TCP, 1)[0]; e.Client != addressOf(client.LocalAddr()) || e.Via.IsValid() || e.Sent != uint64(len(said)) {
				t.Errorf("the log has %+v", e)
			}
		})
	}
}

// dialFrom connects from an address of this machine.
func dialFrom(t *testing.T, client netip.Addr, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(client, 0)), net.TCPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * proxytest.Patience))
	return conn
}

func (s suite) TestAClientOfAnotherProxyThatIsNotIntroducedIsRefused(t *testing.T) {
	var log ended
	n := s.introducing(t, &log, nil)
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("web"))
	addr := tcpThrough(t, n, server.Addr)
	begun := time.Now()
	for _, said := range []string{"", "PROXY TCP4 192.0.2.1 ", headerOf(stranger)[:12], "\r\n\r\n\x00\r\nQUIT\n\x21"} { // these for want of time
		client := proxytest.Dial(t, addr)
		io.WriteString(client, said)
		defer func() {
			if answer, err := io.ReadAll(client); len(answer) > 0 || !proxytest.IsReset(err) {
				t.Errorf("who said %q was answered %q, %v", said, answer, err)
			}
		}()
	}
	second := string(proxyproto.Append(nil, registry.ProxyV2, stranger.Source, stranger.Destination))
	wrong := []string{
		string(proxyproto.AppendDatagram(nil, registry.ProxyV2, stranger.Source, stranger.Destination)),
		second[:15] + "\x0e" + second[16:] + "\x04\x00",                     // half of a TLV
		second[:15] + "\x13" + second[16:] + "\x03\x00\x04\x00\x00\x00\x00", // a false checksum
	}
	for _, said := range append(wrong, "GET / HTTP/1.1\r\n\r\n", "PROXY TCP4 no.address 198.51.100.7 1 2\r\n", "PROXY UNKNOWN "+strings.Repeat("x", 200), "\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x0c") {
		client := proxytest.Dial(t, addr)
		io.WriteString(client, said)
		if answer, err := io.ReadAll(client); len(answer) > 0 || !proxytest.IsReset(err) {
			t.Errorf("who said %q was answered %q, %v", said, answer, err)
		}
	}
	half := proxytest.Dial(t, addr)
	io.WriteString(half, "PROXY ")
	half.CloseWrite()
	for _, e := range log.of(t, registry.TCP, 12) {
		if e.Reason != traffic.NoProxyHeader {
			t.Errorf("a client has ended because of %s", e.Reason)
		}
	}
	if took := time.Since(begun); took < rules.HeaderTimeout*9/10 {
		t.Errorf("all were refused after %v; want %v for those that went on being silent", took, rules.HeaderTimeout)
	}
	if server.Accepted() > 0 {
		t.Error("the endpoint has a client whose PROXY header never came")
	}
}

// Another proxy that looks whether the port is open says nothing, and is no client.
func (s suite) TestAnotherProxyThatLeavesWithoutAWordIsNotTurnedAway(t *testing.T) {
	var log ended
	n := s.introducing(t, &log, nil)
	addr := tcpThrough(t, n, served(t, proxytest.Identify("web")))
	proxytest.Dial(t, addr).CloseWrite()
	proxytest.Reset(proxytest.Dial(t, addr))
	reasons := make(map[traffic.Reason]int)
	for _, e := range log.of(t, registry.TCP, 2) {
		reasons[e.Reason]++
	}
	if reasons[traffic.ClientFinished] != 1 || reasons[traffic.ClientReset] != 1 {
		t.Errorf("ended because of %v", reasons)
	}
}

func (s suite) TestSourceRangesAreAboutTheClientAndNotAboutTheProxyBeforeIt(t *testing.T) {
	var log ended
	n := s.introducing(t, &log, nil)
	port := proxytest.FreePort(t)
	n.apply(from("web", port, "192.0.2.0/24"), endpoints("web", served(t, proxytest.Chat("web"))))
	allowed := proxytest.TalkTo(t, proxytest.On(port))
	io.WriteString(allowed.Conn, headerOf(stranger))
	allowed.MustSay(t, "hello")
	other := stranger
	other.Source = netip.MustParseAddrPort("203.0.113.1:4711")
	for _, header := range []string{headerOf(other), "PROXY UNKNOWN\r\n"} {
		client := proxytest.Dial(t, proxytest.On(port))
		io.WriteString(client, header)
		if answer, err := io.ReadAll(client); len(answer) > 0 || !proxytest.IsReset(err) {
			t.Errorf("%q: answered %q, %v", header, answer, err)
		}
	}
	for _, e := range log.of(t, registry.TCP, 2) {
		if e.Reason != traffic.SourceNotAllowed {
			t.Errorf("ended because of %s", e.Reason)
		}
	}
}

func (s suite) TestClientsOfOneProxyHaveAnAffinityEach(t *testing.T) {
	var log ended
	n := s.introducing(t, &log, nil)
	port := proxytest.FreePort(t)
	n.apply(sticky("web", time.Hour, tcp(port)), endpoints("web", served(t, proxytest.Chat("1")), served(t, proxytest.Chat("2")), served(t, proxytest.Chat("3"))))
	ask := func(last byte) string {
		talk := proxytest.TalkTo(t, proxytest.On(port))
		h := stranger
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, last}), 4711)
		io.WriteString(talk.Conn, headerOf(h))
		return talk.MustSay(t, "hello")
	}
	had := map[byte]string{1: ask(1), 2: ask(2), 3: ask(3)}
	if had[1] == had[2] || had[2] == had[3] {
		t.Errorf("three clients were given %v; want one each", had)
	}
	for last, want := range had {
		if got := ask(last); got != want {
			t.Errorf("client %d had %s and was given %s", last, want, got)
		}
	}
}

// A client whose header is awaited counts as any other: no more of them wait than there may be connections.
func (s suite) TestClientsThatAreNotIntroducedYetCount(t *testing.T) {
	var log ended
	n := s.introducing(t, &log, func(cfg *proxy.Config) { cfg.MaxConnectionsPerService = 2 })
	addr := tcpThrough(t, n, served(t, proxytest.Chat("web")))
	first, second := proxytest.TalkTo(t, addr), proxytest.Dial(t, addr)
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Active == 2 }, "two clients")
	refuses(t, addr)
	if e := log.of(t, registry.TCP, 1)[0]; e.Reason != traffic.ServiceLimit {
		t.Errorf("the third client has ended because of %s", e.Reason)
	}
	io.WriteString(first.Conn, headerOf(stranger))
	first.MustSay(t, "hello")
	second.Close()
}

// An engine that waits lets the whole time for a header pass. One that does not may lose it to a busy machine, but not every time.
func (s suite) TestAStopDoesNotWaitForHeaders(t *testing.T) {
	const tries = 5
	var ends []traffic.Ending
	for range tries {
		var log ended
		n := s.introducing(t, &log, func(cfg *proxy.Config) { cfg.DrainTimeout = 50 * time.Millisecond })
		addr := tcpThrough(t, n, served(t, proxytest.Chat("web")))
		proxytest.Dial(t, addr)
		proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Active == 1 }, "the client")
		n.end()
		e := log.of(t, registry.TCP, 1)[0]
		if e.Reason == traffic.Shutdown && e.Duration < rules.HeaderTimeout*9/10 {
			return
		}
		ends = append(ends, e)
	}
	for _, e := range ends {
		t.Errorf("a stop ended the client after %v because of %s; want it sooner, because of %s", e.Duration, e.Reason, traffic.Shutdown)
	}
}

// As TestAResetInTheMiddleOfBulkIsNeverTakenForACleanEnd, for a client that has said nothing but who it is: its header is none of the bytes that an
// endpoint gets.
func (s suite) TestAClientThatCameByAProxyAndResetsInTheMiddleOfBulkHasNotFinished(t *testing.T) {
	const clients = 20
	ends := make(chan error, clients)
	n := s.introducing(t, new(ended), nil)
	addr := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		for range 500 {
			if _, err := conn.Write(make([]byte, 2<<10)); err != nil {
				if !errors.Is(err, syscall.EPIPE) { // it has taken the reset; EPIPE comes behind a FIN
					ends <- err
					return
				}
				break
			}
		}
		ends <- proxytest.Discard(conn)
	}))
	for range 10 {
		for range clients {
			client := proxytest.Dial(t, addr)
			go func() {
				io.WriteString(client, headerOf(stranger))
				_, _ = io.CopyN(io.Discard, client, 500<<10) // what fails here is seen by the endpoint
				proxytest.Reset(client)
			}()
		}
		for range clients {
			if err := proxytest.Receive(t, ends, "the end of a client"); !proxytest.IsReset(err) {
				t.Fatalf("an endpoint saw %v", err)
			}
		}
	}
}
