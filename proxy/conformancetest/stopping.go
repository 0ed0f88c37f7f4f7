package conformancetest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// How the proxy stops.

func (s suite) TestStoppingLetsRelaysFinish(t *testing.T) { // D49
	cfg := s.config()
	cfg.DrainTimeout = 2 * proxytest.Patience // never reached
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, served(t, proxytest.Chat("a")))
	talk := proxytest.TalkTo(t, addr)
	talk.MustSay(t, "hello")
	udpAddr := udpThrough(t, n, servedUDP(t, "dns"))
	session := proxytest.DialUDP(t, udpAddr)
	session.Ask(t)
	n.stop()
	proxytest.Eventually(t, func() bool { return !proxytest.Listens(addr) }, "new clients refused")
	proxytest.Eventually(t, func() bool { return proxytest.RefusesUDP(t, udpAddr) }, "UDP refused") // ports close one after the other
	talk.MustSay(t, "one more thing")
	select {
	case <-n.stopped:
		t.Error("Run returned while a relay was running")
	default:
	}
	talk.Conn.Close()
	proxytest.Receive(t, n.stopped, "Run to return once the relay has finished")
}

// A UDP session that goes on is not cut by a stop, and no new one begins. The port closes when its last session has been silent for a while.
func (s suite) TestUDPSessionsFinishAtAStop(t *testing.T) {
	cfg := s.config()
	cfg.DrainTimeout = 2 * proxytest.Patience // never reached
	var log ended
	cfg.Ended = log.note
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	server := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("dns"))
	n.apply(service("dns", udp(port)), endpoints("dns", server.Addr))
	n.apply(service("unused", udp(proxytest.FreePort(t))))
	known, silent := proxytest.DialUDP(t, proxytest.On(port)), proxytest.DialUDP(t, proxytest.On(port))
	known.Ask(t)
	silent.Ask(t)
	n.stop()
	proxytest.Eventually(t, func() bool {
		known.Ask(t)
		proxytest.DialUDP(t, proxytest.On(port)).Write([]byte("let me in")) // another one each time: the first may be in time
		return totalsOf(n, "dns").Dropped[traffic.DropShutdown] > 0
	}, "a new client's datagram is dropped")
	had := server.Sessions()
	proxytest.Eventually(t, func() bool {
		known.Ask(t)
		return totalsOf(n, "dns").Active == 1
	}, "the sessions of silent clients end")
	known.Ask(t)
	for _, e := range log.of(t, registry.UDP, 1) {
		if e.Reason != traffic.Shutdown || e.Client == known.LocalAddr().(*net.UDPAddr).AddrPort() {
			t.Errorf("the session of %v has ended because of %s; want those of silent clients, because of %s", e.Client, e.Reason, traffic.Shutdown)
		}
	}
	if got := server.Sessions(); got != had {
		t.Errorf("the endpoint has had %d sessions; want the %d of before", got, had)
	}
	proxytest.Receive(t, n.stopped, "Run to return once the session is silent")
	for _, e := range log.of(t, registry.UDP, 2) {
		if e.Reason != traffic.Shutdown {
			t.Errorf("the session of %v has ended because of %s", e.Client, e.Reason)
		}
	}
	if !proxytest.RefusesUDP(t, proxytest.On(port)) {
		t.Error("the port is open")
	}
}

func (s suite) TestUDPSessionsAreCutWhenTheDrainIsOver(t *testing.T) {
	cfg := s.config()
	cfg.DrainTimeout = 300 * time.Millisecond
	var log ended
	cfg.Ended = log.note
	n := newNode(t, cfg)
	client := proxytest.DialUDP(t, udpThrough(t, n, servedUDP(t, "dns")))
	client.Ask(t)
	n.stop()
	for !isClosed(n.stopped) {
		client.Write([]byte("still there?"))
	}
	if e := log.of(t, registry.UDP, 1)[0]; e.Reason != traffic.Shutdown {
		t.Errorf("it has ended because of %s", e.Reason)
	}
}

func (s suite) TestStoppingCutsRelaysWhenTheDrainIsOver(t *testing.T) {
	cfg := s.config()
	cfg.DrainTimeout = 300 * time.Millisecond
	cfg.DialTimeout, cfg.DialTotalTimeout = 2*proxytest.Patience, 2*proxytest.Patience // a Run that waits for a dial does not return in time
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, served(t, proxytest.Chat("a")))
	talk, half := proxytest.TalkTo(t, addr), proxytest.TalkTo(t, addr)
	talk.MustSay(t, "hello")
	half.MustSay(t, "hello")
	stuck := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) { // a writer without a reader
		for chunk := make([]byte, 64<<10); ; {
			if _, err := conn.Write(chunk); err != nil {
				return
			}
		}
	})))
	stuck.Read(make([]byte, 1))
	n.apply(service("hole", tcp(proxytest.FreePort(t))), endpoints("hole", proxytest.BlackHole(t)))
	for _, s := range n.Status() {
		if s.Owner.Name == named("hole") {
			proxytest.Dial(t, proxytest.On(s.ID.Number)) // is being dialled for when the stop comes
		}
	}
	start := time.Now()
	n.stop()
	proxytest.Receive(t, n.stopped, "Run to return")
	if took := time.Since(start); took < cfg.DrainTimeout { // nothing of what is there ends by itself while this test has patience
		t.Errorf("Run returned after %v; want the drain timeout, %v", took, cfg.DrainTimeout)
	}
	if _, err := talk.Say("still there?"); err == nil {
		t.Error("a relay goes on after Run returned")
	}
	if err := proxytest.Discard(half.Conn); !proxytest.IsReset(err) {
		t.Errorf("the client of a relay that was cut saw %v; want a reset", err)
	}
}

func (s suite) TestWhenRunReturnsNothingIsLeft(t *testing.T) {
	cfg := s.config()
	cfg.DrainTimeout = 100 * time.Millisecond
	n := newNode(t, cfg)
	web, dns := served(t, proxytest.Chat("web")), servedUDP(t, "dns")
	proxytest.Eventually(t, func() bool { return proxytest.Sockets(t) >= 2 }, "the endpoints to be open")
	before := proxytest.Descriptors(t)
	var open []io.Closer
	for range 5 {
		port := proxytest.FreePort(t)
		n.apply(service(fmt.Sprint("tcp-", port), tcp(port)), endpoints(fmt.Sprint("tcp-", port), web))
		talk := proxytest.TalkTo(t, proxytest.On(port))
		talk.MustSay(t, "hello")
		n.apply(service(fmt.Sprint("udp-", port), udp(port)), endpoints(fmt.Sprint("udp-", port), dns))
		client := proxytest.DialUDP(t, proxytest.On(port))
		client.Ask(t)
		open = append(open, talk.Conn, client)
	}
	n.end()
	for _, c := range open {
		c.Close()
	}
	// At once, and not sooner or later: only the endpoint's ends of the relays may take a moment.
	mine := len(open) / 2
	left := proxytest.Lingering(t, before, 0)
	if len(left) > mine {
		t.Errorf("when Run returned there were descriptors left:\n\t%s", strings.Join(left, "\n\t"))
	}
	n.tell(service("late", tcp(proxytest.FreePort(t))))
	if got := n.Status(); len(got) > 0 {
		t.Errorf("a batch after the stop was applied: %+v", got)
	}
}

// Services come, go, fight for ports and change endpoints, some of which are dead, silent, our own
// or too many for a stranger's port, while clients of both protocols come and leave in every way; in
// the midst of it the proxy is stopped. Nothing is promised to these clients but that nothing of
// them is left. The race detector looks on.
func (s suite) TestWhateverHappensNothingIsLeft(t *testing.T) {
	cfg := s.config()
	cfg.DialTimeout, cfg.DialTotalTimeout = 50*time.Millisecond, 100*time.Millisecond
	cfg.HalfClosedTimeout, cfg.UDPTimeout = 50*time.Millisecond, 50*time.Millisecond
	cfg.DrainTimeout = 50 * time.Millisecond
	cfg.MaxUDPSessions, cfg.MaxUDPSessionsPerService = 20, 8
	n := newNode(t, cfg)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	var ports []uint16
	for range 4 {
		ports = append(ports, proxytest.FreePort(t))
	}
	stranger, err := net.Listen("tcp", proxytest.On(ports[0]).String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	where := []registry.Addr{
		served(t, proxytest.Identify("tcp")), served(t, proxytest.Reset), served(t, proxytest.Hold),
		servedUDP(t, "udp"), proxytest.Refusing(t), proxytest.BlackHole(t),
		proxytest.At(proxytest.On(ports[1])), host("localhost", ports[2]), host("no..such.name", 80),
	}
	var clients sync.WaitGroup
	done := make(chan struct{})
	for i := range 6 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for !isClosed(done) {
				at := proxytest.On(ports[rng.IntN(len(ports))]).String()
				network := []string{"tcp", "udp"}[rng.IntN(2)]
				conn, err := net.Dial(network, at)
				if err != nil {
					continue
				}
				conn.SetDeadline(time.Now().Add(time.Duration(rng.IntN(20)) * time.Millisecond))
				conn.Write(make([]byte, rng.IntN(10_000)))
				if tcp, ok := conn.(*net.TCPConn); ok && rng.IntN(2) == 0 {
					tcp.CloseWrite()
				}
				conn.Read(make([]byte, 10))
				if tcp, ok := conn.(*net.TCPConn); ok && rng.IntN(3) == 0 {
					tcp.SetLinger(0)
				}
				conn.Close()
			}
		})
	}
	defer clients.Wait()
	defer close(done)

	rng := rand.New(rand.NewPCG(seed, 99))
	for range 400 {
		var batch []change
		for range 1 + rng.IntN(3) {
			name := fmt.Sprint("service-", rng.IntN(5))
			var claims []registry.Port
			for _, number := range ports {
				for _, protocol := range []registry.Protocol{registry.TCP, registry.UDP} {
					if rng.IntN(4) == 0 {
						claims = append(claims, registry.Port{Protocol: protocol, Number: number})
					}
				}
			}
			batch = append(batch, serviceSince(name, int64(rng.IntN(5)), claims...))
			if rng.IntN(5) == 0 {
				batch = append(batch, noService(name))
			}
			if rng.IntN(2) == 0 {
				rng.Shuffle(len(where), func(i, j int) { where[i], where[j] = where[j], where[i] })
				batch = append(batch, endpoints(name, slices.Clone(where[:rng.IntN(len(where))])...))
			}
		}
		n.tell(batch...)
		n.Status()
		time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
	}
	n.end()
}

func (s suite) TestAProxyThatNeverServedStopsAtOnce(t *testing.T) {
	cfg := s.config()
	cfg.DrainTimeout = 2 * proxytest.Patience
	newNode(t, cfg).end()
}

func (s suite) TestAProxyThatHadNoClientsStopsAtOnce(t *testing.T) {
	cfg := s.config()
	cfg.DrainTimeout = 2 * proxytest.Patience
	n := newNode(t, cfg)
	tcpThrough(t, n)
	udpThrough(t, n)
	n.end()
}
