package proxytest

import (
	"errors"
	"net"
	"testing"
	"time"
)

// Tests of the tests' own tools: one that says yes to everything would make every promise true.

func TestABlackHoleNeitherAcceptsNorRefuses(t *testing.T) {
	NothingLeaks(t)
	hole := BlackHole(t)
	for range 3 {
		conn, err := net.DialTimeout("tcp", hole.String(), 100*time.Millisecond)
		if err == nil {
			conn.Close()
		}
		if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() {
			t.Errorf("dialling a black hole: %v; want a timeout", err)
		}
	}
}

func TestARefusingEndpointRefuses(t *testing.T) {
	NothingLeaks(t)
	addr := Refusing(t).IP
	if !Refuses(addr) {
		t.Errorf("tcp %s does not refuse", addr)
	}
	if !RefusesUDP(t, addr) {
		t.Errorf("udp %s does not refuse", addr)
	}
}

func TestAServerThatAnswersDoesNotRefuse(t *testing.T) {
	NothingLeaks(t)
	web := ServeTCP(t, "127.0.0.1:0", Identify("web"))
	if Refuses(web.Addr.IP) {
		t.Error("taken for refusing: a server that answers")
	}
	if Refuses(ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {}).Addr.IP) {
		t.Error("taken for refusing: a server that ends cleanly without a word")
	}
	if got := WhoAnswers(t, web.Addr.IP); got != "web" {
		t.Errorf("answered by %q", got)
	}
	dns := ServeUDP(t, "127.0.0.1:0", IdentifyUDP("dns"))
	if RefusesUDP(t, dns.Addr.IP) {
		t.Error("taken for refusing: a UDP server that answers")
	}
	if got := DialUDP(t, dns.Addr.IP).Ask(t).Name; got != "dns" {
		t.Errorf("answered by %q", got)
	}
	if !DialUDP(t, ServeUDP(t, "127.0.0.1:0", MuteUDP).Addr.IP).Drops() {
		t.Error("not taken for dropping: a UDP server that does not answer")
	}
}

func TestAResetIsToldFromACleanEnd(t *testing.T) {
	NothingLeaks(t)
	resets := ServeTCP(t, "127.0.0.1:0", Reset)
	conn, err := dial(resets.Addr.IP)
	if err == nil { // else the reset was faster than the dial
		err = Discard(conn)
		conn.Close()
	}
	if !IsReset(err) {
		t.Errorf("a reset was seen as %v", err)
	}
	ends := ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {})
	if err := Discard(Dial(t, ends.Addr.IP)); err != nil || IsReset(err) {
		t.Errorf("a clean end was seen as %v", err)
	}
}

func TestAByteThatIsMissingOrMovedShows(t *testing.T) {
	NothingLeaks(t)
	sent := Stream{Seed: 1, Size: 100_000}
	server := ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		sent.SendTo(conn)
	})
	if err := sent.ReceiveAllFrom(Dial(t, server.Addr.IP)); err != nil {
		t.Errorf("as sent: %v", err)
	}
	for what, other := range map[string]Stream{
		"another stream": {Seed: 2, Size: sent.Size},
		"one byte more":  {Seed: 1, Size: sent.Size + 1},
		"one byte less":  {Seed: 1, Size: sent.Size - 1},
	} {
		if err := other.ReceiveAllFrom(Dial(t, server.Addr.IP)); err == nil {
			t.Errorf("not noticed: %s", what)
		}
	}
	conn := Dial(t, server.Addr.IP)
	conn.Read(make([]byte, 1))
	if err := sent.ReceiveAllFrom(conn); err == nil {
		t.Error("not noticed: the first byte lost")
	}
}

func TestADescriptorLeftOpenLingers(t *testing.T) {
	before := Descriptors(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if left := Lingering(t, before, 0); len(left) != 1 {
		t.Errorf("left open: %q; want the one listener", left)
	}
	l.Close()
	if left := Lingering(t, before, Patience); left != nil {
		t.Errorf("left open: %q; want nothing", left)
	}
}
