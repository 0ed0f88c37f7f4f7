//go:build linux

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
)

// newTestEngine makes an engine on 127.0.0.1. When the test ends it is cut, and nothing is left.
func newTestEngine(t testing.TB, cfg Config) *portable {
	t.Helper()
	proxytest.NothingLeaks(t)
	cfg.BindAddress = proxytest.Loopback
	e := newPortable(cfg.withDefaults(), newOwnPorts(proxytest.Loopback))
	t.Cleanup(func() {
		e.cut()
		e.drain(context.Background())
	})
	return e
}

// ownerOf makes a claim the owner of a socket.
func ownerOf(r *rotation) *atomic.Pointer[claim] {
	owner := new(atomic.Pointer[claim])
	owner.Store(&claim{key: r.key, rotation: r, tally: new(tally), tenure: new(tenure)})
	return owner
}

// open opens a TCP port of e, any that is free, until the test ends.
func open(t testing.TB, e *portable, owner *atomic.Pointer[claim]) (*tcpSocket, netip.AddrPort) {
	t.Helper()
	s, err := e.listen(tcpPort(0), owner)
	if err != nil {
		t.Fatal(err)
	}
	tcp := s.(*tcpSocket)
	t.Cleanup(func() {
		if tcp.ctx.Err() == nil {
			tcp.close()
		}
	})
	return tcp, tcp.listener.Addr().(*net.TCPAddr).AddrPort()
}

func TestAClientGoesToWhoeverOwnsThePortWhenItComes(t *testing.T) {
	e := newTestEngine(t, Config{})
	a, b := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("b"))
	owner := ownerOf(rotationOf(a.Addr))
	s, addr := open(t, e, owner)
	first := proxytest.TalkTo(t, addr)
	if got := first.MustSay(t, "hello"); got != "a" {
		t.Fatalf("answered by %q", got)
	}
	owner.Store(ownerOf(rotationOf(b.Addr)).Load())
	s.ownerChanged()
	if got := proxytest.TalkTo(t, addr).MustSay(t, "hello"); got != "b" {
		t.Errorf("a new client was answered by %q", got)
	}
	if got := first.MustSay(t, "still there?"); got != "a" {
		t.Errorf("the connection of before was answered by %q", got)
	}
}

func TestAClosedPortIsFreeAtOnceAndItsRelaysStay(t *testing.T) {
	e := newTestEngine(t, Config{})
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	port := proxytest.FreePort(t)
	var talks []*proxytest.Talk
	for range 100 {
		s, err := e.listen(tcpPort(port), ownerOf(rotationOf(server.Addr)))
		if err != nil {
			t.Fatalf("after %d times: %v", len(talks), err)
		}
		talk := proxytest.TalkTo(t, proxytest.On(port))
		talk.MustSay(t, "hello")
		talks = append(talks, talk)
		s.close()
		if !proxytest.Refuses(proxytest.On(port)) {
			t.Fatal("a closed port serves")
		}
	}
	for _, talk := range talks {
		talk.MustSay(t, "still there?")
	}
}

// The engine that has no more room leaves its clients in the kernel's queue, where they wait for
// others to leave. Those that are there are served as before.
func TestWithoutDescriptorsClientsWaitForOthersToLeave(t *testing.T) {
	const clients = 10
	e := newTestEngine(t, Config{})
	e.budget = newBudget(3 * (1 + 2*clients) / 2) // a third is kept
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	_, addr := open(t, e, ownerOf(rotationOf(server.Addr)))
	var served []*proxytest.Talk
	for range clients {
		served = append(served, proxytest.TalkTo(t, addr))
		served[len(served)-1].MustSay(t, "hello")
	}
	waiting := make(chan *proxytest.Talk, clients)
	for range clients {
		talk := proxytest.TalkTo(t, addr) // the kernel lets it in
		go func() {
			talk.MustSay(t, "hello")
			waiting <- talk
		}()
	}
	proxytest.Eventually(t, func() bool { return e.budget.inHand.Load() == 1 }, "one client in hand")
	for _, talk := range served {
		talk.MustSay(t, "still there?")
	}
	if n := server.Accepted(); n != clients {
		t.Errorf("%d clients are being served; want %d", n, clients)
	}
	for _, talk := range served {
		talk.Conn.Close()
		proxytest.Receive(t, waiting, "the next client to be served")
	}
}

// A listener that closes while a client waits in its hand does not keep it, nor wait for room.
func TestAClientInHandLeavesWithTheListener(t *testing.T) {
	e := newTestEngine(t, Config{})
	e.budget = newBudget(0) // room for a listener and a client
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	s, addr := open(t, e, ownerOf(rotationOf(server.Addr)))
	proxytest.TalkTo(t, addr).MustSay(t, "hello")
	waiting := proxytest.Dial(t, addr)
	proxytest.Eventually(t, func() bool { return e.budget.inHand.Load() == 1 }, "the client in hand")
	s.close()
	wantReset(t, "client", waiting)
}

func TestAPortIsNotOpenedIntoTheReserve(t *testing.T) {
	e := newTestEngine(t, Config{})
	e.budget = newBudget(6) // room for two listeners and a client
	for range 10 {
		s, addr := open(t, e, ownerOf(rotationOf()))
		if _, err := e.listen(tcpPort(addr.Port()), ownerOf(rotationOf())); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("a port that is open was opened again: %v", err)
		}
		s.close()
	}
	for range 2 {
		open(t, e, ownerOf(rotationOf()))
	}
	if _, err := e.listen(tcpPort(0), ownerOf(rotationOf())); !errors.Is(err, errNoDescriptors) {
		t.Errorf("opening a port for which no descriptor is left: %v; want %v", err, errNoDescriptors)
	}
}

// Others in this process can use up what the budget counts on: then accept(2) itself fails.
func TestAcceptingRecoversFromExhaustionByOthers(t *testing.T) {
	e := newTestEngine(t, Config{})
	server, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer server.Close()
	_, addr := open(t, e, ownerOf(rotationOf(proxytest.At(server.Addr().(*net.TCPAddr).AddrPort()))))
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(client)
	patience := unix.NsecToTimeval(int64(proxytest.Patience))
	must(t, unix.SetsockoptTimeval(client, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience))

	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max})) // not one more
	restore := sync.OnceFunc(func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) })
	defer restore()
	must(t, unix.Connect(client, &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}))
	proxytest.Eventually(t, func() bool { return e.pauses.Load() >= 3 }, "accepting to fail, again and again")
	restore()

	must(t, server.SetDeadline(time.Now().Add(proxytest.Patience)))
	backend, err := server.AcceptTCP()
	must(t, err)
	_, err = backend.Write([]byte("at last"))
	must(t, err)
	must(t, backend.Close())
	got := make([]byte, 10)
	if n, err := unix.Read(client, got); string(got[:max(n, 0)]) != "at last" || err != nil {
		t.Errorf("the client that came meanwhile got %q, %v", got[:max(n, 0)], err)
	}
}

// However accepting fails, it neither spins (D38) nor gives up, and it begins anew when it succeeds.
func TestAcceptingPausesLongerEachTimeItFails(t *testing.T) {
	client, _ := tcpPair(t)
	synctest.Test(t, func(t *testing.T) {
		e := newPortable(Config{}.withDefaults(), newOwnPorts(proxytest.Loopback))
		s := &tcpSocket{engine: e, owner: ownerOf(rotationOf())}
		s.ctx, s.stop = context.WithCancel(t.Context())
		defer s.stop()
		start, calls := time.Now(), 0
		var at []time.Duration
		s.accept = func() (*net.TCPConn, error) {
			calls++
			at = append(at, time.Since(start))
			switch calls {
			case 11:
				start = time.Now()
				return client, nil
			case 14:
				return nil, net.ErrClosed
			}
			return nil, fails(syscall.EMFILE)
		}
		s.acceptAll() // returns at the end
		e.work.Wait()
		const ms = time.Millisecond
		want := []time.Duration{0, 5 * ms, 15 * ms, 35 * ms, 75 * ms, 155 * ms, 315 * ms, 635 * ms, 1275 * ms, 2275 * ms, 3275 * ms, 0, 5 * ms, 15 * ms}
		if fmt.Sprint(at) != fmt.Sprint(want) {
			t.Errorf("accepted at %v\nwant        %v", at, want)
		}
	})
}

// drainFor drains e in the background; ended is closed when drain returns.
func drainFor(t *testing.T, e *portable) (cut context.CancelFunc, ended <-chan struct{}) {
	t.Helper()
	ctx, cut := context.WithCancel(context.Background())
	c := make(chan struct{})
	go func() {
		defer close(c)
		e.drain(ctx)
	}()
	t.Cleanup(func() { cut(); proxytest.Receive(t, c, "drain to return") })
	return cut, c
}

func TestDrainingWaitsForRelaysAndCutsThemOnlyWhenTold(t *testing.T) {
	e := newTestEngine(t, Config{})
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	s, addr := open(t, e, ownerOf(rotationOf(server.Addr)))
	finishes, stays := proxytest.TalkTo(t, addr), proxytest.TalkTo(t, addr)
	finishes.MustSay(t, "hello")
	stays.MustSay(t, "hello")
	s.close()
	cut, ended := drainFor(t, e)
	finishes.MustSay(t, "still there?")
	finishes.Conn.Close()
	stays.MustSay(t, "still there?")
	select {
	case <-ended:
		t.Fatal("drained although a relay is running")
	default:
	}
	cut()
	proxytest.Receive(t, ended, "drain to return")
	wantReset(t, "client", stays.Conn)
}

func TestDrainingEndsByItselfWhenTheLastRelayDoes(t *testing.T) {
	e := newTestEngine(t, Config{})
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	s, addr := open(t, e, ownerOf(rotationOf(server.Addr)))
	talk := proxytest.TalkTo(t, addr)
	talk.MustSay(t, "hello")
	s.close()
	_, ended := drainFor(t, e)
	talk.Conn.Close()
	proxytest.Receive(t, ended, "drain to return")
}

func TestDialsEndWhenTheDrainDoes(t *testing.T) {
	ended := make(chan Ending, 1)
	e := newTestEngine(t, Config{DialTimeout: time.Hour, DialTotalTimeout: time.Hour, Ended: func(end Ending) { ended <- end }})
	dialling := make(chan struct{})
	e.dialer.dial = func(ctx context.Context, _ netip.AddrPort) (*net.TCPConn, error) {
		close(dialling)
		return swallow(ctx)
	}
	s, addr := open(t, e, ownerOf(rotationOf(addr(1))))
	client := proxytest.Dial(t, addr)
	proxytest.Receive(t, dialling, "the dial")
	s.close()
	cut, drained := drainFor(t, e)
	cut()
	proxytest.Receive(t, drained, "drain to return")
	wantReset(t, "client", client)
	if got := proxytest.Receive(t, ended, "the end of the client").Reason; got != Shutdown {
		t.Errorf("the client ended by %v; want %v", got, Shutdown)
	}
}

// An endpoint may see millions of connections before it is removed: of those that have ended it knows nothing.
func TestATenureForgetsTheConnectionsThatHaveEnded(t *testing.T) {
	e := newTestEngine(t, Config{OnRemoval: Removal{Close: true}})
	ofClaim, ofEndpoint := new(tenure), new(tenure)
	before := memory()
	for range 20_000 {
		ctx, release := e.tenures(ofClaim, ofEndpoint)
		release()
		if ctx.Err() == nil {
			t.Fatal("what has ended goes on")
		}
	}
	if left := memory() - before; left > 1<<20 {
		t.Errorf("20,000 connections that have ended left %d bytes behind", left)
	}
	lives, release := e.tenures(ofClaim, ofEndpoint)
	defer release()
	ofEndpoint.end(Removal{Close: true}, EndpointRemoved)
	proxytest.Receive(t, lives.Done(), "the one that lives to hear of the removal")
	if got := reasonOf(lives); got != EndpointRemoved {
		t.Errorf("it is told %v", got)
	}
}

// Where connections may outlive everything there is nothing to do for each.
func TestConnectionsThatMayGoOnCostNothingForIt(t *testing.T) {
	e := newTestEngine(t, Config{})
	ofClaim, ofEndpoint := new(tenure), new(tenure)
	if n := testing.AllocsPerRun(100, func() {
		_, release := e.tenures(ofClaim, ofEndpoint)
		release()
	}); n != 0 {
		t.Errorf("%v allocations for each connection", n)
	}
}
