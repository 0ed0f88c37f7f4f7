package conformancetest

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/proxytest"
)

// lent makes a node that has lent its connections to another one, which has not got the rest of them yet.
func lent(t *testing.T, begin func(old *node, port uint16)) (old, next *node, records []change) {
	t.Helper()
	nodes := newNodes(t, liveConfig(), 2)
	port := proxytest.FreePort(t)
	records = []change{service("web", tcp(port)), endpoints("web", served(t, proxytest.Chat("one")))}
	nodes[0].apply(records...)
	begin(nodes[0], port)
	nodes[0].giveListeners(nodes[1], records...)
	nodes[0].lendTo(nodes[1])
	return nodes[0], nodes[1], records
}

// adoptRest ends a take-over after lending.
func adoptRest(t *testing.T, old, next *node) {
	t.Helper()
	if err := next.Adopt(old.freeze()); err != nil {
		t.Fatal(err)
	}
	next.Serve()
	old.Release()
	old.end()
}

// TestALentConnectionEndsForItsPeersAtOnce: by a FIN or by a reset, though the successor has its sockets as well.
func TestALentConnectionEndsForItsPeersAtOnce(t *testing.T) {
	for _, how := range []string{"FIN", "reset"} {
		t.Run(how, func(t *testing.T) {
			nodes := newNodes(t, liveConfig(), 2)
			port := proxytest.FreePort(t)
			goOn, heard, answered := make(chan struct{}), make(chan error, 1), make(chan error, 1)
			records := []change{service("web", tcp(port)), endpoints("web", served(t, func(conn *net.TCPConn) {
				io.WriteString(conn, "hello")
				<-goOn
				if how == "reset" {
					conn.SetLinger(0)
					conn.Close()
					return
				}
				conn.CloseWrite()
				_, err := conn.Read(make([]byte, 1))
				answered <- err
			}))}
			nodes[0].apply(records...)
			client := proxytest.Dial(t, proxytest.On(port))
			if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			nodes[0].giveListeners(nodes[1], records...)
			nodes[0].lendTo(nodes[1])
			close(goOn)
			go func() {
				_, err := client.Read(make([]byte, 1))
				client.CloseWrite() // which ends it in the predecessor
				heard <- err
			}()
			want := error(io.EOF)
			if how == "reset" {
				want = syscall.ECONNRESET
			}
			if err := proxytest.Receive(t, heard, "the end"); !errors.Is(err, want) {
				t.Errorf("the client heard %v; want %v", err, want)
			}
			if how == "FIN" {
				if err := proxytest.Receive(t, answered, "the client's FIN"); err != io.EOF {
					t.Errorf("the endpoint heard %v after the client's FIN; want EOF", err)
				}
			}
			proxytest.Eventually(t, func() bool { return totalsOf(nodes[0], "web").Active == 0 }, "the end in the predecessor")
			adoptRest(t, nodes[0], nodes[1])
			if n := totalsOf(nodes[1], "web").Active; n != 0 {
				t.Errorf("the successor has %d connections; want none", n)
			}
		})
	}
}

// TestAConnectionThatBeginsAfterLendingGoesOverToo, beside one that was lent.
func TestAConnectionThatBeginsAfterLendingGoesOverToo(t *testing.T) {
	var first *proxytest.Talk
	var at uint16
	old, next, _ := lent(t, func(_ *node, port uint16) {
		at = port
		first = proxytest.TalkTo(t, proxytest.On(port))
		first.MustSay(t, "hello")
	})
	second := proxytest.TalkTo(t, proxytest.On(at))
	second.MustSay(t, "hello")
	first.MustSay(t, "still in the predecessor")
	adoptRest(t, old, next)
	first.MustSay(t, "still there?")
	second.MustSay(t, "and you?")
	if n := totalsOf(next, "web").Active; n != 2 {
		t.Errorf("the successor has %d connections; want 2", n)
	}
}

// TestWhatWasLentIsGivenBackIfThePredecessorEnds: the successor serves with the listeners.
func TestWhatWasLentIsGivenBackIfThePredecessorEnds(t *testing.T) {
	var at uint16
	old, next, _ := lent(t, func(_ *node, port uint16) {
		at = port
		proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello")
	})
	old.Release() // as the end of a process does
	next.Serve()
	proxytest.TalkTo(t, proxytest.On(at)).MustSay(t, "hello")
	if n := totalsOf(next, "web").Active; n != 1 {
		t.Errorf("the successor counts %d connections; want the one that has begun since", n)
	}
}

func TestTheRestOfAConnectionThatWasNotLentIsAnError(t *testing.T) {
	old, next, _ := lent(t, func(_ *node, port uint16) { proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello") })
	items := old.freeze()
	if err := next.Adopt(func(yield func(takeover.Item, error) bool) {
		for item, err := range items {
			for range 2 {
				if !yield(item, err) {
					return
				}
			}
		}
	}); err == nil {
		t.Error("it was adopted twice")
	}
	next.end()
	old.Thaw()
}
