package conformancetest

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A take-over within one process: the successor gets duplicates of descriptors, as SCM_RIGHTS would give it.

func TestStreamsGoOnThroughTakeOvers(t *testing.T) {
	for name, pass := range map[string]func(n, next *node, records ...change){
		"": (*node).passTo, "without lending": func(n, next *node, records ...change) { n.passWith(next, func() {}, records...) },
	} {
		t.Run(name, func(t *testing.T) { streamsGoOn(t, pass) })
	}
}

func streamsGoOn(t *testing.T, pass func(n, next *node, records ...change)) {
	nodes := newNodes(t, liveConfig(), 6)
	var endpoints []registry.Addr
	up, down := proxytest.Stream{Seed: 1, Size: 24 << 20}, proxytest.Stream{Seed: 2, Size: 24 << 20}
	endpointErrs := make(chan error, 8)
	endpoints = append(endpoints, served(t, func(conn *net.TCPConn) {
		var both sync.WaitGroup
		both.Go(func() { endpointErrs <- up.ReceiveAllFrom(conn) })
		err := down.SendTo(conn)
		conn.CloseWrite()
		both.Wait()
		endpointErrs <- err
	}))
	port := proxytest.FreePort(t)
	records := []change{service("web", tcp(port)), endpointsOf("web", "", endpoints...)}
	nodes[0].apply(records...)
	var clients sync.WaitGroup
	clientErrs := make(chan error, 8)
	for range 4 {
		conn := proxytest.Dial(t, proxytest.On(port))
		clients.Go(func() {
			err := up.SendTo(conn)
			conn.CloseWrite()
			clientErrs <- err
		})
		clients.Go(func() { clientErrs <- down.ReceiveAllFrom(conn) })
	}
	step := uint64(4*(up.Size+down.Size)) / uint64(len(nodes))
	for i, next := range nodes[1:] {
		var carried uint64 // by the nodes before
		for _, n := range nodes[:i] {
			carried += sentAndReceived(n)
		}
		proxytest.Eventually(t, func() bool { return carried+sentAndReceived(nodes[i]) >= uint64(i+1)*step }, "part %d of the streams", i+1)
		pass(nodes[i], next, records...)
	}
	clients.Wait()
	for range 8 {
		if err := errors.Join(<-clientErrs, <-endpointErrs); err != nil {
			t.Error(err)
		}
	}
}

func sentAndReceived(n *node) uint64 {
	sum := totalsOf(n, "web")
	return sum.Sent + sum.Received
}

func TestAnIdleConnectionGoesOnAfterATakeOver(t *testing.T) {
	endings, cfg := make(chan traffic.Ending, 2), liveConfig()
	cfg.NoteLocal = true
	cfg.Ended = func(e traffic.Ending) { endings <- e }
	nodes := newNodesOf(t, liveConfig(), cfg)
	port := proxytest.FreePort(t)
	records := []change{service("web", tcp(port)), endpoints("web", served(t, proxytest.Chat("one")), served(t, proxytest.Chat("two")))}
	nodes[0].apply(records...)
	first, second := proxytest.TalkTo(t, proxytest.On(port)), proxytest.TalkTo(t, proxytest.On(port))
	first.MustSay(t, "hello")
	second.MustSay(t, "hello")
	nodes[0].passTo(nodes[1], records...)
	if name := first.MustSay(t, "still there?"); name != "one" {
		t.Errorf("%q answers; want one", name)
	}
	if name := second.MustSay(t, "still there?"); name != "two" {
		t.Errorf("%q answers; want two", name)
	}
	if sum := totalsOf(nodes[1], "web"); sum.Active != 2 || sum.Begun != 0 {
		t.Errorf("the successor counts %d connections, and %d that have begun; want 2, and 0, which the predecessor has counted", sum.Active, sum.Begun)
	}
	first.Conn.Close()
	if e := proxytest.Receive(t, endings, "the ending"); !e.Local.IsValid() {
		t.Error("the successor does not know the proxy's own address towards the endpoint")
	}
	if sum := totalsOf(nodes[0], "web"); sum.Active != 0 || slices.Max(sum.Ended[:]) != 0 {
		t.Errorf("the predecessor counts %d connections, and endings %v; want none", sum.Active, sum.Ended)
	}
}

func TestAHalfClosedConnectionGoesOnAfterATakeOver(t *testing.T) {
	for _, who := range []string{"client", "endpoint"} {
		t.Run(who, func(t *testing.T) {
			nodes := newNodes(t, liveConfig(), 3)
			stream := proxytest.Stream{Seed: 3, Size: 1 << 20}
			goOn, finished, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			finishFirst := func(conn *net.TCPConn) error {
				_, err := io.WriteString(conn, "all I have to say")
				return errors.Join(err, conn.CloseWrite(), stream.ReceiveAllFrom(conn))
			}
			listenFirst := func(conn *net.TCPConn) error {
				said, err := io.ReadAll(conn)
				if string(said) != "all I have to say" {
					err = errors.Join(err, errors.New("heard "+string(said)))
				}
				close(finished)
				<-goOn
				return errors.Join(err, stream.SendTo(conn), conn.CloseWrite())
			}
			client, endpoint := finishFirst, listenFirst
			if who == "endpoint" {
				client, endpoint = endpoint, client
			}
			port := proxytest.FreePort(t)
			records := []change{service("web", tcp(port)), endpoints("web", served(t, func(conn *net.TCPConn) { result <- endpoint(conn) }))}
			nodes[0].apply(records...)
			conn := proxytest.Dial(t, proxytest.On(port))
			clientResult := make(chan error, 1)
			go func() { clientResult <- client(conn) }()
			proxytest.Receive(t, finished, "the first FIN")
			nodes[0].passTo(nodes[1], records...)
			nodes[1].passTo(nodes[2], records...)
			close(goOn)
			if err := errors.Join(proxytest.Receive(t, clientResult, "the client"), proxytest.Receive(t, result, "the endpoint")); err != nil {
				t.Error(err)
			}
			proxytest.Eventually(t, func() bool { return totalsOf(nodes[2], "web").Active == 0 }, "the end of the connection")
			want := map[string]uint64{"client": totalsOf(nodes[2], "web").Ended[0], "endpoint": totalsOf(nodes[2], "web").Ended[1]}[who]
			if want != 1 {
				t.Errorf("endings %v; want that the %s finished first", totalsOf(nodes[2], "web").Ended, who)
			}
		})
	}
}

func TestAStalledReaderGetsEverythingAfterATakeOver(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 3)
	stream := proxytest.Stream{Seed: 4, Size: 24 << 20}
	result := make(chan error, 1)
	port := proxytest.FreePort(t)
	records := []change{service("web", tcp(port)), endpoints("web", served(t, func(conn *net.TCPConn) {
		result <- errors.Join(stream.SendTo(conn), conn.CloseWrite())
		proxytest.Discard(conn)
	}))}
	nodes[0].apply(records...)
	conn := proxytest.DialNarrow(t, proxytest.On(port), 4<<10)
	proxytest.Settled(t, func() int64 { return int64(totalsOf(nodes[0], "web").Received) }, 200*time.Millisecond)
	nodes[0].passTo(nodes[1], records...)
	nodes[1].passTo(nodes[2], records...)
	if err := stream.ReceiveAllFrom(conn); err != nil {
		t.Error(err)
	}
	if err := proxytest.Receive(t, result, "the endpoint"); err != nil {
		t.Error(err)
	}
}

func TestADialUnderWayIsBegunAgainByTheSuccessor(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	port := proxytest.FreePort(t)
	nodes[0].apply(service("web", tcp(port)), endpoints("web", proxytest.BlackHole(t)))
	client := proxytest.TalkTo(t, proxytest.On(port))
	answered := make(chan error, 1)
	go func() {
		_, err := client.Say("said before an endpoint answered")
		answered <- err
	}()
	proxytest.Eventually(t, func() bool { return totalsOf(nodes[0], "web").Active == 1 }, "the client")
	nodes[0].passTo(nodes[1], service("web", tcp(port)), endpoints("web", served(t, proxytest.Chat("one"))))
	if err := proxytest.Receive(t, answered, "the answer"); err != nil {
		t.Error(err)
	}
}

func TestUDPSessionsKeepTheirEndpointAndSocketThroughTakeOvers(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 4)
	port := proxytest.FreePort(t)
	records := []change{service("dns", udp(port)), endpoints("dns", servedUDP(t, "one"), servedUDP(t, "two"), servedUDP(t, "three"))}
	nodes[0].apply(records...)
	type known struct {
		client *proxytest.UDPClient
		answer proxytest.Answer
	}
	var clients []known
	for range 7 {
		c := proxytest.DialUDP(t, proxytest.On(port))
		clients = append(clients, known{c, c.Ask(t)})
	}
	for i, next := range nodes[1:] {
		nodes[i].passTo(next, records...)
		for _, c := range clients {
			if got := c.client.Ask(t); got != c.answer {
				t.Errorf("after take-over %d %+v answers; want %+v", i+1, got, c.answer)
			}
		}
	}
	if got := totalsOf(nodes[3], "dns"); got.Active != int64(len(clients)) {
		t.Errorf("%d sessions; want %d", got.Active, len(clients))
	}
}

func TestDatagramsThatArriveInATakeOverAreAnswered(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	port := proxytest.FreePort(t)
	records := []change{service("dns", udp(port)), endpoints("dns", servedUDP(t, "one"))}
	nodes[0].apply(records...)
	known := proxytest.DialUDP(t, proxytest.On(port))
	known.Ask(t)
	stranger := proxytest.DialUDP(t, proxytest.On(port))
	nodes[0].giveListeners(nodes[1], records...)
	items := nodes[0].freeze()
	for _, c := range []*proxytest.UDPClient{known, stranger} {
		if _, err := c.Write([]byte("asked while nothing moves")); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes[1].Adopt(items); err != nil {
		t.Fatal(err)
	}
	nodes[1].Serve()
	nodes[0].Release()
	for _, c := range []*proxytest.UDPClient{known, stranger} {
		if answer, err := c.Exchange(nil); err != nil || !strings.HasSuffix(string(answer), "asked while nothing moves") {
			t.Errorf("got %q, %v", answer, err)
		}
	}
}

func TestClientsThatConnectInATakeOverAreServed(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	port := proxytest.FreePort(t)
	records := []change{service("web", tcp(port)), endpoints("web", served(t, proxytest.Chat("one")))}
	nodes[0].apply(records...)
	nodes[0].giveListeners(nodes[1], records...)
	items := nodes[0].freeze()
	clients := make([]*proxytest.Talk, 20)
	for i := range clients {
		clients[i] = proxytest.TalkTo(t, proxytest.On(port))
	}
	if err := nodes[1].Adopt(items); err != nil {
		t.Fatal(err)
	}
	nodes[1].Serve()
	nodes[0].Release()
	nodes[0].end()
	for _, c := range clients {
		c.MustSay(t, "hello")
	}
}

func TestNobodyIsRefusedInATakeOver(t *testing.T) {
	onEachEngine(t, func(t *testing.T, cfg proxy.Config) {
		nodes := newNodes(t, cfg, 4)
		port := proxytest.FreePort(t)
		records := []change{service("web", tcp(port)), endpoints("web", served(t, proxytest.Identify("one")))}
		nodes[0].apply(records...)
		refused := hammer(t, proxytest.On(port), func() {
			for i, next := range nodes[1:] {
				if nodes[i].giveListeners(next, records...) {
					if err := next.Adopt(nodes[i].freeze()); err != nil {
						t.Error(err)
					}
				}
				next.Serve()
				nodes[i].Release()
				nodes[i].end()
			}
		})
		if refused > 0 {
			t.Errorf("%d clients got no answer", refused)
		}
	})
}

func TestWhatCannotBePassedOnDrainsInThePredecessor(t *testing.T) {
	for _, c := range []struct{ from, to proxy.Kind }{{proxy.Portable, proxy.Portable}, {proxy.Portable, proxy.Epoll}, {proxy.Epoll, proxy.Portable}, {proxy.Ring, proxy.Portable}} {
		t.Run(c.from.String()+" to "+c.to.String(), func(t *testing.T) {
			from, to := liveConfig(), liveConfig()
			from.Engine, to.Engine = c.from, c.to
			nodes := newNodesOf(t, from, to)
			old, next := nodes[0], nodes[1]
			port := proxytest.FreePort(t)
			records := []change{service("web", tcp(port)), endpoints("web", served(t, proxytest.Chat("one")))}
			old.apply(records...)
			before := proxytest.TalkTo(t, proxytest.On(port))
			before.MustSay(t, "hello")
			if old.giveListeners(next, records...) {
				t.Error("the successor says that it can adopt connections")
			}
			next.Serve()
			old.Release()
			after := proxytest.TalkTo(t, proxytest.On(port))
			after.MustSay(t, "hello")
			before.MustSay(t, "still there?")
			if was, is := totalsOf(old, "web").Active, totalsOf(next, "web").Active; was != 1 || is != 1 {
				t.Errorf("the predecessor has %d connections, the successor %d; want one each", was, is)
			}
		})
	}
}

func TestAThawLosesNothing(t *testing.T) {
	half := errors.New("half of it is enough")
	for _, point := range []struct {
		name string
		pass func(t *testing.T, old, next *node, records []change)
	}{
		{"after the listeners", func(t *testing.T, old, next *node, records []change) { old.giveListeners(next, records...) }},
		{"after a part was lent", func(t *testing.T, old, next *node, records []change) {
			old.giveListeners(next, records...)
			if _, err := old.Lend(true, func(items []takeover.Item) error { return errors.New("the successor is gone") }); err == nil {
				t.Error("Lend does not say that nothing was lent")
			}
		}},
		{"after all was lent", func(t *testing.T, old, next *node, records []change) {
			old.giveListeners(next, records...)
			old.lendTo(next)
		}},
		{"after all was lent, and half of the rest", func(t *testing.T, old, next *node, records []change) {
			old.giveListeners(next, records...)
			old.lendTo(next)
			n := 0
			if err := next.Adopt(func(yield func(takeover.Item, error) bool) {
				for item, err := range old.freeze() {
					if n++; n > 4 {
						for _, fd := range item.Descriptors {
							syscall.Close(fd)
						}
						item, err = takeover.Item{}, half
					}
					if !yield(item, err) || err != nil {
						return
					}
				}
			}); err != half {
				t.Errorf("Adopt returned %v; want what the items yielded", err)
			}
		}},
		{"after a freeze that nobody reads", func(t *testing.T, old, next *node, records []change) {
			old.giveListeners(next, records...)
			if _, err := old.Freeze(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		{"after half of the connections", func(t *testing.T, old, next *node, records []change) {
			old.giveListeners(next, records...)
			items := old.freeze()
			n := 0
			err := next.Adopt(func(yield func(takeover.Item, error) bool) {
				for item, err := range items {
					if n++; n > 4 {
						for _, fd := range item.Descriptors {
							syscall.Close(fd)
						}
						item, err = takeover.Item{}, half
					}
					if !yield(item, err) || err != nil {
						return
					}
				}
			})
			if err != half {
				t.Errorf("Adopt returned %v; want what the items yielded", err)
			}
		}},
		{"after all connections", func(t *testing.T, old, next *node, records []change) {
			old.giveListeners(next, records...)
			if err := next.Adopt(old.freeze()); err != nil {
				t.Error(err)
			}
		}},
		{"after a message that is corrupt", func(t *testing.T, old, next *node, records []change) {
			old.giveListeners(next, records...)
			items := old.freeze()
			if err := next.Adopt(func(yield func(takeover.Item, error) bool) {
				for item, err := range items {
					if len(item.Descriptors) == 2 {
						item.Body = item.Body[:3]
					}
					if !yield(item, err) {
						return
					}
				}
			}); err == nil {
				t.Error("the message was taken")
			}
		}},
	} {
		t.Run(point.name, func(t *testing.T) {
			nodes := newNodes(t, liveConfig(), 2)
			old, next := nodes[0], nodes[1]
			web, dns := proxytest.FreePort(t), proxytest.FreePort(t)
			up := proxytest.Stream{Seed: 5, Size: 24 << 20}
			received := make(chan error, 4)
			records := []change{
				service("web", tcp(web)), endpoints("web", served(t, func(conn *net.TCPConn) { received <- up.ReceiveAllFrom(conn) })),
				service("dns", udp(dns)), endpoints("dns", servedUDP(t, "one"), servedUDP(t, "two")),
			}
			old.apply(records...)
			sent, thawed := make(chan error, 4), make(chan struct{})
			for range 4 {
				conn := proxytest.Dial(t, proxytest.On(web))
				go func() {
					err := up.SendTo(conn)
					<-thawed // a fast engine may have carried all of it before the freeze
					sent <- errors.Join(err, conn.CloseWrite())
				}()
			}
			client := proxytest.DialUDP(t, proxytest.On(dns))
			answer := client.Ask(t)
			proxytest.Eventually(t, func() bool { return totalsOf(old, "web").Sent > uint64(up.Size) }, "a quarter of the streams")
			point.pass(t, old, next, records)
			next.end()
			old.Thaw()
			close(thawed)
			for range 4 {
				if err := errors.Join(proxytest.Receive(t, sent, "a client"), proxytest.Receive(t, received, "an endpoint")); err != nil {
					t.Error(err)
				}
			}
			if again := client.Ask(t); again != answer {
				t.Errorf("%+v answers after the thaw; before it was %+v", again, answer)
			}
			old.apply(service("more", tcp(proxytest.FreePort(t)))) // configuration is applied again
		})
	}
}

func TestASuccessorThatIsGivenNoConnectionsServesWithTheListeners(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	port := proxytest.FreePort(t)
	records := []change{service("web", tcp(port)), endpoints("web", served(t, proxytest.Identify("one")))}
	nodes[0].apply(records...)
	nodes[0].giveListeners(nodes[1], records...)
	lost := errors.New("the predecessor is gone")
	if err := nodes[1].Adopt(func(yield func(takeover.Item, error) bool) { yield(takeover.Item{}, lost) }); err != lost {
		t.Errorf("Adopt returned %v", err)
	}
	nodes[0].Release()
	nodes[0].end()
	nodes[1].Serve()
	if name := proxytest.WhoAnswers(t, proxytest.On(port)); name != "one" {
		t.Errorf("%q answers", name)
	}
}

func TestASuccessorWithFewerDescriptorsRefusesAndThePredecessorGoesOn(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	port := proxytest.FreePort(t)
	records := []change{service("web", tcp(port)), endpoints("web", served(t, proxytest.Chat("one")))}
	nodes[0].apply(records...)
	client := proxytest.TalkTo(t, proxytest.On(port))
	client.MustSay(t, "hello")
	nodes[0].giveListeners(nodes[1], records...)
	items := nodes[0].freeze()
	err := nodes[1].Adopt(func(yield func(takeover.Item, error) bool) {
		for item, err := range items {
			for record, e := handover.Decode(item); ; record, e = handover.Decode(item) {
				tcp, ok := record.(*handover.TCP)
				if !ok || e != nil {
					break
				}
				if more := handover.Encode(tcp, item.Descriptors...); !yield(passed(t, more, new([]byte)), nil) { // until nothing is left
					for _, fd := range item.Descriptors {
						syscall.Close(fd)
					}
					return
				}
			}
			if !yield(item, err) {
				return
			}
		}
	})
	if err == nil {
		t.Error("the successor took more than it has room for")
	}
	nodes[1].end()
	nodes[0].Thaw()
	client.MustSay(t, "still there?")
}

func TestAFreezeThatTakesTooLongIsGivenUp(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 1)
	port := proxytest.FreePort(t)
	nodes[0].apply(service("web", tcp(port)), endpoints("web", served(t, proxytest.Identify("one"))))
	if _, err := nodes[0].Listeners(); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		items, err := nodes[0].Freeze(over)
		if err != nil {
			break
		}
		_ = items // it was quicker
		nodes[0].Thaw()
		if _, err := nodes[0].Listeners(); err != nil {
			t.Fatal(err)
		}
	}
	nodes[0].Thaw()
	if name := proxytest.WhoAnswers(t, proxytest.On(port)); name != "one" {
		t.Errorf("%q answers", name)
	}
}

// TestASuccessorThatWasToldToStopServesNobody: it is told so after it has adopted the listeners, and its predecessor goes on.
func TestASuccessorThatWasToldToStopServesNobody(t *testing.T) {
	onEachEngine(t, func(t *testing.T, cfg proxy.Config) {
		nodes := newNodes(t, cfg, 2)
		old, next := nodes[0], nodes[1]
		port := proxytest.FreePort(t)
		records := []change{service("web", tcp(port)), endpoints("web", served(t, proxytest.Chat("one")))}
		old.apply(records...)
		client := proxytest.TalkTo(t, proxytest.On(port))
		client.MustSay(t, "hello")
		live := old.giveListeners(next, records...)
		next.end()
		if live {
			if err := next.Adopt(old.freeze()); err == nil {
				t.Error("it takes over connections")
			}
			if err := next.Borrow(func(func(takeover.Item, error) bool) {}); err == nil {
				t.Error("it borrows connections")
			}
		}
		next.Serve()
		old.Thaw()
		client.MustSay(t, "still there?")
		proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello")
	})
}
