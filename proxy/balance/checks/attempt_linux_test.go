package checks_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// ask asks an address, and waits for the end.
func ask(t *testing.T, q checks.Question, to netip.AddrPort) error {
	t.Helper()
	a, err := checks.Begin(&q, to, nil)
	if err != nil {
		return err
	}
	var poller checks.Poller
	done := false
	proxytest.Eventually(t, func() bool {
		if poller.Look([]*checks.Attempt{&a})(0) {
			done, err = a.Proceed(&q, to)
		}
		return done
	}, "the end of the attempt")
	return err
}

// says tests an error by its text; "" means none.
func says(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("error %v; want %q", err, want)
	}
}

func TestATCPQuestionIsAnsweredByWhoListens(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		s := proxytest.ServeTCP(t, addr, proxytest.Hold)
		says(t, ask(t, checks.Question{}, s.Addr.IP), "")
	}
	says(t, ask(t, checks.Question{}, proxytest.Refusing(t).IP), "connection refused")
}

func TestAnHTTPQuestionIsAnsweredByItsStatus(t *testing.T) {
	for _, c := range []struct{ answer, err string }{
		{"HTTP/1.1 200 OK\r\n\r\n", ""},
		{"HTTP/1.0 204 \r\n\r\n", ""},
		{"HTTP/1.1 200 OK\nServer: x\n\n", ""},
		{"HTTP/1.1 399 \r\nContent-Length: 5\r\n\r\nhe", ""},
		{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 14<<10) + "\r\n\r\n", ""},
		{"HTTP/1.1 404 Not Found\r\n\r\n", `GET "/healthz": status 404`},
		{"HTTP/1.1 100 Continue\r\n\r\n", `GET "/healthz": status 100`},
		{"HTTP/1.1 2x0 OK\r\n\r\n", "not HTTP"},
		{"HTTP/2 200 OK\r\n\r\n", "not HTTP"},
		{"SSH-2.0-x\r\n", "not HTTP"},
		{"HTTP/1.1 2", "closed without an answer"},
		{"HTTP/1.1 200 OK\r\n", "closed without an answer"},
		{"HTTP/1.1 200 OK\r\nServer: x\r\n", "closed without an answer"},
		{"HTTP/1.1 20000000000000000000000 OK\r\n\r\n", "not HTTP"},
		{"HTTP/1.1 20\r\n\r\n", "not HTTP"},
		{"HTTP/1.1 200OK\r\n\r\n", "not HTTP"},
		{"HTTP/1.x 200 OK\r\n\r\n", "not HTTP"},
		{"HTTP/1.1 200 OK\r\nno header\r\n\r\n", "not HTTP"},
		{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n", "header of the answer is longer"},
		{"", "closed without an answer"},
	} {
		s := proxytest.ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
			request := make([]byte, 512)
			n, _ := conn.Read(request)
			if want := "GET /healthz HTTP/1.1\r\nHost: "; !strings.HasPrefix(string(request[:n]), want) || !strings.HasSuffix(string(request[:n]), "\r\n\r\n") {
				t.Errorf("was sent %q", request[:n])
			}
			for i := range min(len(c.answer), 64) { // byte by byte: an answer may come in pieces
				fmt.Fprint(conn, c.answer[i:i+1])
			}
			fmt.Fprint(conn, c.answer[min(len(c.answer), 64):])
			conn.CloseWrite()
			io.Copy(io.Discard, conn)
		})
		says(t, ask(t, checks.Question{Path: "/healthz"}, s.Addr.IP), c.err)
	}
}

// A server that hangs behind its status line has not answered: its clients would get as much.
func TestAStatusLineAloneIsNoAnswer(t *testing.T) {
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	s := proxytest.ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nServer: x\r\n")
		<-hold
		fmt.Fprint(conn, "\r\n")
		io.Copy(io.Discard, conn)
	})
	t.Cleanup(release) // before the server's own
	q := checks.Question{Path: "/healthz"}
	a, err := checks.Begin(&q, s.Addr.IP, nil)
	if err != nil {
		t.Fatal(err)
	}
	var poller checks.Poller
	received := 0
	proxytest.Eventually(t, func() bool {
		if poller.Look([]*checks.Attempt{&a})(0) {
			received++
			if done, err := a.Proceed(&q, s.Addr.IP); done {
				t.Fatalf("it is over without the end of the header: %v", err)
			}
		}
		return received == 2 // the connection, and what the server has sent
	}, "the status line")
	release()
	done := false
	proxytest.Eventually(t, func() bool {
		if poller.Look([]*checks.Attempt{&a})(0) {
			done, err = a.Proceed(&q, s.Addr.IP)
		}
		return done
	}, "the end of the attempt")
	says(t, err, "")
}

func TestAUDPQuestionIsAnsweredByTheBeginOfADatagram(t *testing.T) {
	s := proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, _ netip.AddrPort) []byte { return append([]byte("you said "), payload...) })
	says(t, ask(t, checks.Question{Protocol: registry.UDP, Send: "ping"}, s.Addr.IP), "")
	says(t, ask(t, checks.Question{Protocol: registry.UDP, Send: "ping", Expect: "you said p"}, s.Addr.IP), "")
	says(t, ask(t, checks.Question{Protocol: registry.UDP, Send: "ping", Expect: "pong"}, s.Addr.IP), "another answer")
	s.Close()
	says(t, ask(t, checks.Question{Protocol: registry.UDP, Send: "ping"}, s.Addr.IP), "connection refused")
}
