package conformancetest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
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

// TestAConnectionThatMovesToAnotherLoopAfterLendingGoesOver, once: it carries on in bulk in the predecessor, see package relay.
func TestAConnectionThatMovesToAnotherLoopAfterLendingGoesOver(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	port := proxytest.FreePort(t)
	records := []change{service("web", tcp(port)), endpoints("web", served(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }))}
	nodes[0].apply(records...)
	client := proxytest.Dial(t, proxytest.On(port))
	exchange := func(n int) {
		t.Helper()
		said := bytes.Repeat([]byte("bulk"), n/4)
		go func() { _, _ = client.Write(said) }()
		heard := make([]byte, len(said))
		if _, err := io.ReadFull(client, heard); err != nil || !bytes.Equal(heard, said) {
			t.Fatalf("of %d bytes other ones came back, or %v", n, err)
		}
	}
	exchange(4)
	nodes[0].giveListeners(nodes[1], records...)
	nodes[0].lendTo(nodes[1])
	exchange(64 << 20)
	adoptRest(t, nodes[0], nodes[1])
	exchange(1 << 20)
	if n := totalsOf(nodes[1], "web").Active; n != 1 {
		t.Errorf("the successor has %d connections; want 1", n)
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

// lentSessions makes a node that has lent its UDP sessions to another one, which has not got the rest of them yet.
func lentSessions(t *testing.T, limit, clients int, served ...registry.Addr) (old, next *node, known []*proxytest.UDPClient, first []proxytest.Answer) {
	t.Helper()
	cfg := liveConfig()
	cfg.MaxUDPSessionsPerService = limit
	nodes := newNodes(t, cfg, 2)
	port := proxytest.FreePort(t)
	records := []change{service("dns", udp(port)), endpoints("dns", served...)}
	nodes[0].apply(records...)
	for range clients {
		c := proxytest.DialUDP(t, proxytest.On(port))
		known, first = append(known, c), append(first, c.Ask(t))
	}
	nodes[0].giveListeners(nodes[1], records...)
	nodes[0].lendTo(nodes[1])
	return nodes[0], nodes[1], known, first
}

func TestALentSessionGoesOnInThePredecessorAndThenInTheSuccessor(t *testing.T) {
	const clients = 150 // more than one step lends
	old, next, known, first := lentSessions(t, 0, clients, servedUDP(t, "one"), servedUDP(t, "two"))
	before := totalsOf(old, "dns")
	for i, c := range known {
		if got := c.Ask(t); got != first[i] {
			t.Errorf("while it was lent %+v answered; want %+v", got, first[i])
		}
	}
	during := totalsOf(old, "dns")
	adoptRest(t, old, next)
	for i, c := range known {
		if got := c.Ask(t); got != first[i] {
			t.Errorf("after the take-over %+v answered; want %+v", got, first[i])
		}
	}
	if n := totalsOf(next, "dns").Active; n != clients || before.Active != clients || during.Active != clients {
		t.Errorf("%d, %d and then %d sessions; want %d", before.Active, during.Active, n, clients)
	}
}

func TestALentSessionThatMovesGoesOverToItsNewEndpoint(t *testing.T) {
	one := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("one"))
	old, next, known, first := lentSessions(t, 0, 1, one.Addr, servedUDP(t, "two"))
	if first[0].Name != "one" {
		t.Fatalf("%q answered first; want the first endpoint", first[0].Name)
	}
	one.Close()
	moved := known[0].AskOften(t)
	if moved.Name != "two" {
		t.Fatalf("%q answered after the first had gone", moved.Name)
	}
	adoptRest(t, old, next)
	if got := known[0].Ask(t); got != moved {
		t.Errorf("after the take-over %+v answered; want %+v", got, moved)
	}
	if n := totalsOf(next, "dns").Active; n != 1 {
		t.Errorf("the successor has %d sessions; want one", n)
	}
}

// TestALentSessionThatEndsIsGivenBack: and its client may have begun another one.
func TestALentSessionThatEndsIsGivenBack(t *testing.T) {
	const limit = 2
	old, next, known, first := lentSessions(t, limit, limit, servedUDP(t, "one"))
	stranger := proxytest.DialUDP(t, known[0].RemoteAddr().(*net.UDPAddr).AddrPort())
	stays := stranger.Ask(t) // evicts the first
	again := known[0].Ask(t) // evicts the second
	if again.Session == first[0].Session {
		t.Fatal("the session went on; want another one")
	}
	adoptRest(t, old, next)
	if n := totalsOf(next, "dns").Active; n != limit {
		t.Errorf("the successor has %d sessions; want the %d that began last", n, limit)
	}
	for c, want := range map[*proxytest.UDPClient]proxytest.Answer{stranger: stays, known[0]: again} {
		if got := c.Ask(t); got != want {
			t.Errorf("after the take-over %+v answers; want %+v", got, want)
		}
	}
}

func TestTheRestOfASessionThatWasNotLentIsAnError(t *testing.T) {
	old, next, known, first := lentSessions(t, 0, 1, servedUDP(t, "one"))
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
	if got := known[0].Ask(t); got != first[0] {
		t.Errorf("%+v answered after the take-over had failed; want %+v", got, first[0])
	}
}
