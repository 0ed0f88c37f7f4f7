package proxytest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

// On makes the address of a port on 127.0.0.1.
func On(port uint16) netip.AddrPort { return netip.AddrPortFrom(Loopback, port) }

// Dial connects to addr. The connection is closed when the test ends; nothing on it can block for
// longer than twice [Patience].
func Dial(t testing.TB, addr netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// DialNarrow is [Dial] for a client whose kernel takes only so many bytes ahead of its reading. The
// buffer has to be small from the start: a window that shrinks later makes the sender wait for one
// that never comes (RFC 1122, 4.2.3.4), but for a probe now and then.
func DialNarrow(t testing.TB, addr netip.AddrPort, buffer int) *net.TCPConn {
	t.Helper()
	conn, err := dialWith(&net.Dialer{Timeout: Patience, Control: narrow(buffer)}, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func dial(addr netip.AddrPort) (*net.TCPConn, error) {
	return dialWith(&net.Dialer{Timeout: Patience}, addr)
}

func dialWith(dialer *net.Dialer, addr netip.AddrPort) (*net.TCPConn, error) {
	var conn net.Conn
	if err := elsewhere(func() (err error) {
		conn, err = dialer.Dial("tcp", ofNode(addr).String())
		return err
	}); err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(2 * Patience))
	return conn.(*net.TCPConn), nil
}

// AskTCP connects to addr, says nothing, and returns what the server says until it finishes.
func AskTCP(addr netip.AddrPort) (string, error) { return AskTCPFrom(netip.Addr{}, addr) }

// AskTCPFrom is [AskTCP] for a client with an address of its own, such as 127.0.0.2.
func AskTCPFrom(client netip.Addr, addr netip.AddrPort) (string, error) {
	dialer := &net.Dialer{Timeout: Patience}
	if client.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(ofRemote(netip.AddrPortFrom(client, 0)))
	}
	conn, err := dialWith(dialer, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// WhoAnswers is [AskTCP] for a test that needs an answer.
func WhoAnswers(t testing.TB, addr netip.AddrPort) string {
	t.Helper()
	answer, err := AskTCP(addr)
	if err != nil {
		t.Fatalf("ask %s: %v after %q", addr, err, answer)
	}
	return answer
}

// Refuses reports whether addr turns clients away: the connection is refused or, so fast that the
// client was let in first, reset without a word.
func Refuses(addr netip.AddrPort) bool {
	answer, err := AskTCP(addr)
	return answer == "" && err != nil && !isTimeout(err)
}

// Listens reports whether a socket listens at addr. Unlike [Refuses] it waits for no answer.
func Listens(addr netip.AddrPort) bool {
	conn, err := dial(addr)
	if err == nil {
		conn.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED)
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// A Talk is a client of a server that chats (see [Chat]).
type Talk struct {
	Conn  *net.TCPConn
	lines *bufio.Reader
}

// TalkTo connects to a server that chats.
func TalkTo(t testing.TB, addr netip.AddrPort) *Talk {
	t.Helper()
	conn := Dial(t, addr)
	return &Talk{conn, bufio.NewReader(conn)}
}

// TryTalkTo is [TalkTo] for a server that may refuse.
func TryTalkTo(t testing.TB, addr netip.AddrPort) (*Talk, error) {
	t.Helper()
	conn, err := dial(addr)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	return &Talk{conn, bufio.NewReader(conn)}, nil
}

// Say says something and returns the name of who answers.
func (c *Talk) Say(something string) (name string, err error) {
	if _, err := fmt.Fprintln(c.Conn, something); err != nil {
		return "", err
	}
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	name, echo, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
	if echo != something {
		return "", fmt.Errorf("said %q and got %q", something, line)
	}
	return name, nil
}

// MustSay is Say for a test that needs an answer.
func (c *Talk) MustSay(t testing.TB, something string) (name string) {
	t.Helper()
	name, err := c.Say(something)
	if err != nil {
		t.Fatalf("say %q: %v", something, err)
	}
	return name
}
