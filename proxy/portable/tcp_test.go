//go:build linux

package portable

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

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
)

// newTestEngine makes an engine on 127.0.0.1. When the test ends it is cut, and nothing is left.
func newTestEngine(t testing.TB, cfg engine.Config) *Engine {
	t.Helper()
	proxytest.NothingLeaks(t)
	cfg.BindAddress = proxytest.Loopback
	e := New(cfg.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	t.Cleanup(func() {
		e.Cut()
		e.Drain(context.Background())
	})
	return e
}

// open opens a TCP port of e, any that is free, until the test ends.
func open(t testing.TB, e *Engine, owner *atomic.Pointer[engine.Claim]) (*tcpSocket, netip.AddrPort) {
	t.Helper()
	s, err := e.Listen(enginetest.TCPPort(0), owner)
	if err != nil {
		t.Fatal(err)
	}
	tcp := s.(*tcpSocket)
	t.Cleanup(func() {
		if tcp.ctx.Err() == nil {
			tcp.Close()
		}
	})
	return tcp, tcp.listener.Addr().(*net.TCPAddr).AddrPort()
}

func TestAClientGoesToWhoeverOwnsThePortWhenItComes(t *testing.T) {
	e := newTestEngine(t, engine.Config{})
	a, b := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("b"))
	owner := enginetest.OwnerOf(enginetest.NewRotation(a.Addr))
	s, addr := open(t, e, owner)
	first := proxytest.TalkTo(t, addr)
	if got := first.MustSay(t, "hello"); got != "a" {
		t.Fatalf("answered by %q", got)
	}
	owner.Store(enginetest.OwnerOf(enginetest.NewRotation(b.Addr)).Load())
	s.OwnerChanged()
	if got := proxytest.TalkTo(t, addr).MustSay(t, "hello"); got != "b" {
		t.Errorf("a new client was answered by %q", got)
	}
	if got := first.MustSay(t, "still there?"); got != "a" {
		t.Errorf("the connection of before was answered by %q", got)
	}
}

func TestAClosedPortIsFreeAtOnceAndItsRelaysStay(t *testing.T) {
	e := newTestEngine(t, engine.Config{})
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	port := proxytest.FreePort(t)
	var talks []*proxytest.Talk
	for range 100 {
		s, err := e.Listen(enginetest.TCPPort(port), enginetest.OwnerOf(enginetest.NewRotation(server.Addr)))
		if err != nil {
			t.Fatalf("after %d times: %v", len(talks), err)
		}
		talk := proxytest.TalkTo(t, proxytest.On(port))
		talk.MustSay(t, "hello")
		talks = append(talks, talk)
		s.Close()
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
	e := newTestEngine(t, engine.Config{})
	e.Budget = admit.NewBudget(3 * (1 + 2*clients) / 2) // a third is kept
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	_, addr := open(t, e, enginetest.OwnerOf(enginetest.NewRotation(server.Addr)))
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
	proxytest.Eventually(t, func() bool { return e.Budget.InHand.Load() == 1 }, "one client in hand")
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
	e := newTestEngine(t, engine.Config{})
	e.Budget = admit.NewBudget(0) // room for a listener and a client
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	s, addr := open(t, e, enginetest.OwnerOf(enginetest.NewRotation(server.Addr)))
	proxytest.TalkTo(t, addr).MustSay(t, "hello")
	waiting := proxytest.Dial(t, addr)
	proxytest.Eventually(t, func() bool { return e.Budget.InHand.Load() == 1 }, "the client in hand")
	s.Close()
	wantReset(t, "client", waiting)
}

func TestAPortIsNotOpenedIntoTheReserve(t *testing.T) {
	e := newTestEngine(t, engine.Config{})
	e.Budget = admit.NewBudget(6) // room for two listeners and a client
	for range 10 {
		s, addr := open(t, e, enginetest.OwnerOf(enginetest.NewRotation()))
		if _, err := e.Listen(enginetest.TCPPort(addr.Port()), enginetest.OwnerOf(enginetest.NewRotation())); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("a port that is open was opened again: %v", err)
		}
		s.Close()
	}
	for range 2 {
		open(t, e, enginetest.OwnerOf(enginetest.NewRotation()))
	}
	if _, err := e.Listen(enginetest.TCPPort(0), enginetest.OwnerOf(enginetest.NewRotation())); !errors.Is(err, admit.ErrNoDescriptors) {
		t.Errorf("opening a port for which no descriptor is left: %v; want %v", err, admit.ErrNoDescriptors)
	}
}

// Others in this process can use up what the budget counts on: then accept(2) itself fails.
func TestAcceptingRecoversFromExhaustionByOthers(t *testing.T) {
	e := newTestEngine(t, engine.Config{})
	server, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	enginetest.Must(t, err)
	defer server.Close()
	_, addr := open(t, e, enginetest.OwnerOf(enginetest.NewRotation(proxytest.At(server.Addr().(*net.TCPAddr).AddrPort()))))
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	enginetest.Must(t, err)
	defer unix.Close(client)
	patience := unix.NsecToTimeval(int64(proxytest.Patience))
	enginetest.Must(t, unix.SetsockoptTimeval(client, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience))

	var before unix.Rlimit
	enginetest.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	enginetest.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max})) // not one more
	restore := sync.OnceFunc(func() { enginetest.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) })
	defer restore()
	enginetest.Must(t, unix.Connect(client, &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}))
	proxytest.Eventually(t, func() bool { return e.Pauses.Load() >= 3 }, "accepting to fail, again and again")
	restore()

	enginetest.Must(t, server.SetDeadline(time.Now().Add(proxytest.Patience)))
	backend, err := server.AcceptTCP()
	enginetest.Must(t, err)
	_, err = backend.Write([]byte("at last"))
	enginetest.Must(t, err)
	enginetest.Must(t, backend.Close())
	got := make([]byte, 10)
	if n, err := unix.Read(client, got); string(got[:max(n, 0)]) != "at last" || err != nil {
		t.Errorf("the client that came meanwhile got %q, %v", got[:max(n, 0)], err)
	}
}

// However accepting fails, it neither spins (D38) nor gives up, and it begins anew when it succeeds.
func TestAcceptingPausesLongerEachTimeItFails(t *testing.T) {
	client, _ := tcpPair(t)
	synctest.Test(t, func(t *testing.T) {
		e := New(engine.Config{}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
		s := &tcpSocket{engine: e, owner: enginetest.OwnerOf(enginetest.NewRotation())}
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
		e.Work.Wait()
		const ms = time.Millisecond
		want := []time.Duration{0, 5 * ms, 15 * ms, 35 * ms, 75 * ms, 155 * ms, 315 * ms, 635 * ms, 1275 * ms, 2275 * ms, 3275 * ms, 0, 5 * ms, 15 * ms}
		if fmt.Sprint(at) != fmt.Sprint(want) {
			t.Errorf("accepted at %v\nwant        %v", at, want)
		}
	})
}

// drainFor drains e in the background; ended is closed when drain returns.
func drainFor(t *testing.T, e *Engine) (cut context.CancelFunc, ended <-chan struct{}) {
	t.Helper()
	ctx, cut := context.WithCancel(context.Background())
	c := make(chan struct{})
	go func() {
		defer close(c)
		e.Drain(ctx)
	}()
	t.Cleanup(func() { cut(); proxytest.Receive(t, c, "drain to return") })
	return cut, c
}

func TestDrainingWaitsForRelaysAndCutsThemOnlyWhenTold(t *testing.T) {
	e := newTestEngine(t, engine.Config{})
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	s, addr := open(t, e, enginetest.OwnerOf(enginetest.NewRotation(server.Addr)))
	finishes, stays := proxytest.TalkTo(t, addr), proxytest.TalkTo(t, addr)
	finishes.MustSay(t, "hello")
	stays.MustSay(t, "hello")
	s.Close()
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
	e := newTestEngine(t, engine.Config{})
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	s, addr := open(t, e, enginetest.OwnerOf(enginetest.NewRotation(server.Addr)))
	talk := proxytest.TalkTo(t, addr)
	talk.MustSay(t, "hello")
	s.Close()
	_, ended := drainFor(t, e)
	talk.Conn.Close()
	proxytest.Receive(t, ended, "drain to return")
}

func TestDialsEndWhenTheDrainDoes(t *testing.T) {
	ended := make(chan traffic.Ending, 1)
	e := newTestEngine(t, engine.Config{DialTimeout: time.Hour, DialTotalTimeout: time.Hour, Ended: func(end traffic.Ending) { ended <- end }})
	dialling := make(chan struct{})
	e.dialer.dial = func(ctx context.Context, _ netip.AddrPort) (*net.TCPConn, error) {
		close(dialling)
		return swallow(ctx)
	}
	s, addr := open(t, e, enginetest.OwnerOf(enginetest.NewRotation(enginetest.Address(1))))
	client := proxytest.Dial(t, addr)
	proxytest.Receive(t, dialling, "the dial")
	s.Close()
	cut, drained := drainFor(t, e)
	cut()
	proxytest.Receive(t, drained, "drain to return")
	wantReset(t, "client", client)
	if got := proxytest.Receive(t, ended, "the end of the client").Reason; got != traffic.Shutdown {
		t.Errorf("the client ended by %v; want %v", got, traffic.Shutdown)
	}
}

// An endpoint may see millions of connections before it is removed: of those that have ended it knows nothing.
func TestATenureForgetsTheConnectionsThatHaveEnded(t *testing.T) {
	e, closes := newTestEngine(t, engine.Config{}), removal.Policy{Close: true}
	ofClaim, ofEndpoint := new(removal.Lifetime), new(removal.Lifetime)
	before := memory()
	for range 20_000 {
		ctx, release := e.lifetimes([]*removal.Lifetime{ofClaim, ofEndpoint})
		release()
		if ctx.Err() == nil {
			t.Fatal("what has ended goes on")
		}
	}
	if left := memory() - before; left > 1<<20 {
		t.Errorf("20,000 connections that have ended left %d bytes behind", left)
	}
	lives, release := e.lifetimes([]*removal.Lifetime{ofClaim, ofEndpoint})
	defer release()
	ofEndpoint.End(closes, traffic.EndpointRemoved, 0)
	proxytest.Receive(t, lives.Done(), "the one that lives to hear of the removal")
	if got := removal.ReasonOf(lives); got != traffic.EndpointRemoved {
		t.Errorf("it is told %v", got)
	}
}

// Where connections may outlive everything there is nothing to do for each.
func TestConnectionsThatMayGoOnCostNothingForIt(t *testing.T) {
	e := newTestEngine(t, engine.Config{})
	c, ok := tcp.Admit(&e.Base, enginetest.OwnerOf(enginetest.NewRotation()).Load(), 80, proxytest.On(1))
	if !ok {
		t.Fatal("the client is refused")
	}
	e1 := enginetest.NewRotation(enginetest.Address(1)).Endpoints()[0]
	if n := testing.AllocsPerRun(100, func() {
		c.Given(e1, nil)
		_, release := e.lifetimes(c.Lifetimes())
		release()
	}); n != 0 {
		t.Errorf("%v allocations for each connection", n)
	}
}
