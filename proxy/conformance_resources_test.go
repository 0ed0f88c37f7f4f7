//go:build linux

package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang/glog"
	"golang.org/x/sys/unix"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Stopping, and running out.

func TestStoppingLetsRelaysFinish(t *testing.T) { // D49
	conform(t, func(t *testing.T, cfg proxy.Config) {
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
		if !proxytest.RefusesUDP(t, udpAddr) {
			t.Error("udp is still served")
		}
		talk.MustSay(t, "one more thing")
		select {
		case <-n.stopped:
			t.Error("Run returned while a relay was running")
		default:
		}
		talk.Conn.Close()
		proxytest.Receive(t, n.stopped, "Run to return once the relay has finished")
	})
}

func TestStoppingCutsRelaysWhenTheDrainIsOver(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		cfg.DrainTimeout = 300 * time.Millisecond
		n := newNode(t, cfg)
		addr := tcpThrough(t, n, served(t, proxytest.Chat("a")))
		talk, half := proxytest.TalkTo(t, addr), proxytest.TalkTo(t, addr)
		talk.MustSay(t, "hello")
		half.MustSay(t, "hello")
		stuck := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) { // a writer nobody reads
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
				proxytest.Dial(t, proxytest.On(s.Port)) // is being dialled for when the stop comes
			}
		}
		start := time.Now()
		n.stop()
		proxytest.Receive(t, n.stopped, "Run to return")
		if took := time.Since(start); took < cfg.DrainTimeout || took > cfg.DrainTimeout+time.Second {
			t.Errorf("Run returned after %v; want a little more than the drain timeout, %v", took, cfg.DrainTimeout)
		}
		if _, err := talk.Say("still there?"); err == nil {
			t.Error("a relay goes on after Run returned")
		}
		if err := proxytest.Discard(half.Conn); !proxytest.IsReset(err) {
			t.Errorf("the client of a relay that was cut saw %v; want a reset", err)
		}
	})
}

func TestWhenRunReturnsNothingIsLeft(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
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
	})
}

// Services come, go, fight for ports and change endpoints, some of which are dead, silent, our own
// or too many for a stranger's port, while clients of both protocols come and leave in every way; in
// the midst of it the proxy is stopped. Nothing is promised to these clients but that nothing of
// them is left. The race detector looks on.
func TestWhateverHappensNothingIsLeft(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
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
	})
}

func TestAProxyThatNeverServedStopsAtOnce(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		cfg.DrainTimeout = 2 * proxytest.Patience
		newNode(t, cfg).end()
	})
}

func TestAProxyThatHadNoClientsStopsAtOnce(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		cfg.DrainTimeout = 2 * proxytest.Patience
		n := newNode(t, cfg)
		tcpThrough(t, n)
		udpThrough(t, n)
		n.end()
	})
}

// What the tests below tell the process in which descriptors are few.
const fewEnv = "PROXYTEST_FEW"

// A scarcity is a proxy in a process of its own that may have few descriptors; clients and
// endpoints stay in the first.
type scarcity struct {
	*proxytest.Process
	t        *testing.T
	Web, DNS netip.AddrPort // a service over TCP and one over UDP
}

const fewDescriptors = 256

// scarce runs a test with a proxy that has few descriptors.
func scarce(t *testing.T, test func(t *testing.T, s *scarcity)) { scarceWith(t, proxy.Config{}, test) }

// scarceWith is [scarce] with limits other than the default.
func scarceWith(t *testing.T, limits proxy.Config, test func(t *testing.T, s *scarcity)) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		cfg.MaxConnections = limits.MaxConnections
		if proxytest.Inside(t) {
			serveScarce(t, cfg)
			return
		}
		proxytest.NothingLeaks(t)
		web := []registry.Addr{served(t, proxytest.Chat("1")), served(t, proxytest.Chat("2"))}
		dns := []registry.Addr{servedUDP(t, "1"), servedUDP(t, "2")}
		s := &scarcity{t: t, Web: proxytest.On(proxytest.FreePort(t)), DNS: proxytest.On(proxytest.FreePort(t))}
		setting, err := json.Marshal(scarceSetting{s.Web.Port(), s.DNS.Port(), web, dns})
		if err != nil {
			t.Fatal(err)
		}
		s.Process = proxytest.Start(t, fewEnv+"="+string(setting))
		if got := s.Ask("ready?"); got != "ready" {
			t.Fatalf("the proxy with few descriptors: %q", got)
		}
		test(t, s)
	})
}

type scarceSetting struct {
	WebPort, DNSPort uint16
	Web, DNS         []registry.Addr
}

// serveScarce is the other process: a node, and answers about it.
func serveScarce(t *testing.T, cfg proxy.Config) {
	var setting scarceSetting
	if err := json.Unmarshal([]byte(os.Getenv(fewEnv)), &setting); err != nil {
		t.Fatal(err)
	}
	limitDescriptors(t, fewDescriptors)
	n := newNode(t, cfg)
	n.apply(
		service("web", tcp(setting.WebPort)), endpoints("web", setting.Web...),
		service("dns", udp(setting.DNSPort)), endpoints("dns", setting.DNS...))
	var hoard []*os.File
	proxytest.Obey(t, func(command string) string {
		switch command {
		case "hoard": // takes every descriptor there is
			for {
				f, err := os.Open(os.DevNull)
				if err != nil {
					return err.Error()
				}
				hoard = append(hoard, f)
			}
		case "one": // gives one of them back
			hoard[len(hoard)-1].Close()
			hoard = hoard[:len(hoard)-1]
		case "release": // gives back the rest
			for _, f := range hoard {
				f.Close()
			}
			hoard = nil
		case "reserve": // tells whether others find descriptors: etcd, logs, HTTP
			for i := range 8 {
				f, err := os.Open(os.DevNull)
				if err != nil {
					return fmt.Sprintf("%d, then %v", i, err)
				}
				defer f.Close()
			}
			return "enough"
		case "cpu": // nanoseconds used so far
			var used syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
				return err.Error()
			}
			return fmt.Sprint(used.Utime.Nano() + used.Stime.Nano())
		case "ended": // how often clients over TCP ended for each reason
			var told []string
			for _, r := range proxy.Reasons() {
				if n := totalsOf(n, "web").Ended[r]; n > 0 {
					told = append(told, fmt.Sprintf("%s: %d", r, n))
				}
			}
			return strings.Join(told, ", ")
		case "sockets":
			return fmt.Sprint(proxytest.Sockets(t))
		case "pauses":
			return fmt.Sprint(n.AcceptPauses())
		case "without endpoints":
			n.apply(endpoints("web"), endpoints("dns"))
		}
		return "ready"
	})
}

// limitDescriptors bounds how many descriptors this process may have, which must be one of its own.
func limitDescriptors(t *testing.T, limit uint64) {
	t.Helper()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
}

func (s *scarcity) number(command string) (n int64) {
	s.t.Helper()
	if _, err := fmt.Sscan(s.Ask(command), &n); err != nil {
		s.t.Fatalf("ask %q: %v", command, err)
	}
	return n
}

// isCalm checks that the proxy neither burns the processor nor fills the log while something lasts.
func (s *scarcity) isCalm(what string, meanwhile func()) {
	s.t.Helper()
	const window = time.Second
	log, cpu, start := s.LogLines(), s.number("cpu"), time.Now()
	meanwhile()
	time.Sleep(window - time.Since(start))
	if lines := s.LogLines() - log; lines > 20 {
		s.t.Errorf("%s: %d log lines in %v", what, lines, time.Since(start))
	}
	if used := time.Duration(s.number("cpu") - cpu); used > window/3 {
		s.t.Errorf("%s: the processor was busy for %v in %v", what, used, time.Since(start))
	}
}

// talkTo says hello to a server that chats. One that refuses may do so before the client knows that
// it is connected.
func talkTo(t *testing.T, addr netip.AddrPort) (*proxytest.Talk, error) {
	t.Helper()
	talk, err := proxytest.TryTalkTo(t, addr)
	if err == nil {
		_, err = talk.Say("hello")
	}
	return talk, err
}

// By default no client has to wait for descriptors: the limit of connections is reached first, and who
// is too many hears so at once. Those that are there notice nothing.
func TestMoreClientsThanTheLimitAreRefusedBeforeDescriptorsRunOut(t *testing.T) {
	const clients = fewDescriptors
	scarce(t, func(t *testing.T, s *scarcity) {
		var served []*proxytest.Talk
		refused := 0
		s.isCalm("more clients than the limit", func() {
			for range clients {
				talk, err := talkTo(t, s.Web)
				if err == nil {
					served = append(served, talk)
				} else if !proxytest.IsReset(err) {
					t.Fatalf("a client too many saw %v; want a reset", err)
				} else {
					refused++
				}
			}
			for _, talk := range served {
				talk.MustSay(t, "still here")
			}
			for range 10 { // and there is room for UDP
				proxytest.DialUDP(t, s.DNS).AskOften(t)
			}
			if got := s.Ask("reserve"); got != "enough" {
				t.Errorf("descriptors left for others: %s", got)
			}
		})
		if len(served) < clients/8 {
			t.Errorf("%d clients at once were served with %d descriptors", len(served), fewDescriptors)
		}
		if got, want := s.Ask("ended"), fmt.Sprintf("connection_limit: %d", refused); got != want {
			t.Errorf("ended so far: %s; want %s", got, want)
		}
		served[0].Conn.Close()
		proxytest.Eventually(t, func() bool {
			_, err := talkTo(t, s.Web)
			return err == nil
		}, "room for one when one has left")
	})
}

// More clients than there are descriptors for, as when listeners have taken what the limit of
// connections counts on: those that have one go on, the others wait their turn, some descriptors are
// left for others, and nothing needs to be restarted.
func TestMoreClientsThanDescriptorsWaitTheirTurn(t *testing.T) { // D38
	const clients = fewDescriptors
	scarceWith(t, proxy.Config{MaxConnections: clients}, func(t *testing.T, s *scarcity) {
		idle := s.number("sockets")
		var answered atomic.Int64
		leave := make(chan struct{})
		first := make(chan *proxytest.Talk, clients) // those that were answered before anybody left
		var asking sync.WaitGroup
		for range clients {
			talk := proxytest.TalkTo(t, s.Web) // the kernel lets it in even when nobody accepts
			asking.Go(func() {
				if _, err := talk.Say("hello"); err != nil {
					t.Errorf("after %d of %d clients were answered: %v", answered.Load(), clients, err)
				}
				first <- talk
				answered.Add(1)
				<-leave
				talk.Conn.Close()
			})
		}
		proxytest.Eventually(t, func() bool { return answered.Load() > 0 }, "the first answer")
		fits := proxytest.Settled(t, answered.Load, 300*time.Millisecond)
		if fits < clients/8 || fits > clients/2 {
			t.Errorf("%d clients at once were served with %d descriptors", fits, fewDescriptors)
		}
		s.isCalm("more clients than descriptors", func() {
			for range fits {
				(<-first).MustSay(t, "still here")
			}
			if got := s.Ask("reserve"); got != "enough" {
				t.Errorf("descriptors left for others: %s", got)
			}
		})
		close(leave)
		asking.Wait()
		proxytest.Eventually(t, func() bool { return s.number("sockets") == idle }, "as many sockets as before the clients came")
	})
}

// When something else in the process has taken every descriptor, accepting fails. It must fail
// calmly, leave alone what is being relayed, blame no endpoint, and recover by itself.
func TestWithoutASingleDescriptorTheProxyStaysCalmAndRecovers(t *testing.T) { // D38
	scarce(t, func(t *testing.T, s *scarcity) {
		talk, client := proxytest.TalkTo(t, s.Web), proxytest.DialUDP(t, s.DNS)
		talk.MustSay(t, "hello")
		session := client.Ask(t)
		idle := s.number("sockets")
		s.Ask("hoard")
		var waiting []*proxytest.Talk
		s.isCalm("no descriptor left", func() {
			for range 20 {
				waiting = append(waiting, proxytest.TalkTo(t, s.Web))
				proxytest.DialUDP(t, s.DNS).Write([]byte("no room for a session"))
			}
			talk.MustSay(t, "still here")
			if got := client.Ask(t); got != session {
				t.Errorf("a session moved from %v to %v", session, got)
			}
		})
		if s.number("pauses") == 0 {
			t.Error("no pause of accepting was counted")
		}
		s.isCalm("one descriptor left", func() { // enough to accept, and not to dial
			s.Ask("one")
			talk.MustSay(t, "still here")
		})
		s.Ask("release")
		// Some may have been turned away. Those who come now are not, and find both endpoints well.
		for _, w := range waiting {
			w.Conn.Close()
		}
		proxytest.Eventually(t, func() bool {
			_, err := proxytest.TalkTo(t, s.Web).Say("is anybody there?")
			return err == nil
		}, "an answer after the descriptors came back")
		answers := make(map[string]int)
		for range 10 {
			next := proxytest.TalkTo(t, s.Web)
			answers[next.MustSay(t, "hello")]++
			next.Conn.Close()
			answers["udp "+proxytest.DialUDP(t, s.DNS).AskOften(t).Name]++
		}
		if answers["1"] < 4 || answers["2"] < 4 || answers["udp 1"] < 4 || answers["udp 2"] < 4 {
			t.Errorf("after the descriptors came back, ten clients of each went to %v; want half to each endpoint", answers)
		}
		talk.MustSay(t, "still here")
		if now := s.number("sockets"); now < idle {
			t.Errorf("%d sockets are left of %d", now, idle)
		}
	})
}

// More UDP clients than there are descriptors for are all served, one after the other.
func TestMoreUDPClientsThanDescriptorsAreServed(t *testing.T) { // D44
	scarce(t, func(t *testing.T, s *scarcity) {
		s.isCalm("more UDP clients than descriptors", func() {
			for range fewDescriptors {
				client := proxytest.DialUDP(t, s.DNS)
				client.AskOften(t)
				client.Close()
			}
			if got := s.Ask("reserve"); got != "enough" {
				t.Errorf("descriptors left for others: %s", got)
			}
		})
		talk := proxytest.TalkTo(t, s.Web)
		talk.MustSay(t, "UDP has left room for TCP")
	})
}

func TestClientsThatCannotBeServedDoNotFillTheLog(t *testing.T) {
	scarce(t, func(t *testing.T, s *scarcity) {
		s.Ask("without endpoints")
		log := s.LogLines()
		for range 300 {
			proxytest.Refuses(s.Web)
			proxytest.DialUDP(t, s.DNS).Write([]byte("dropped"))
		}
		lines := proxytest.Settled(t, func() int64 { return int64(s.LogLines()) }, 100*time.Millisecond) - int64(log)
		if lines > 30 {
			t.Errorf("%d log lines for 600 clients without endpoints", lines)
		}
	})
}

// A crowd is a proxy in a process of its own with few descriptors and many services, all of which have the
// one endpoint, and which are on ports that follow each other.
type crowd struct {
	*proxytest.Process
	ports []uint16
}

// crowded starts a proxy that may have so many descriptors, for so many services.
func crowded(t *testing.T, descriptors uint64, services int, test func(t *testing.T, c *crowd)) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		if proxytest.Inside(t) {
			serveCrowded(t, cfg)
			return
		}
		proxytest.NothingLeaks(t)
		web := served(t, proxytest.Chat("web"))
		c := new(crowd)
		for range services {
			c.ports = append(c.ports, proxytest.FreePort(t))
		}
		slices.Sort(c.ports)
		setting, err := json.Marshal(crowdSetting{descriptors, c.ports, web})
		if err != nil {
			t.Fatal(err)
		}
		c.Process = proxytest.Start(t, fewEnv+"="+string(setting))
		if got := c.Ask("ready?"); got != "ready" {
			t.Fatalf("the proxy of many services: %q", got)
		}
		test(t, c)
	})
}

type crowdSetting struct {
	Descriptors uint64
	Ports       []uint16
	Web         registry.Addr
}

// serveCrowded is the other process.
func serveCrowded(t *testing.T, cfg proxy.Config) {
	var setting crowdSetting
	if err := json.Unmarshal([]byte(os.Getenv(fewEnv)), &setting); err != nil {
		t.Fatal(err)
	}
	limitDescriptors(t, setting.Descriptors)
	n := newNode(t, cfg)
	name := func(i int) string { return fmt.Sprintf("s%04d", i) }
	var all []change
	for i, port := range setting.Ports {
		all = append(all, service(name(i), tcp(port)), endpoints(name(i), setting.Web))
	}
	n.tell(all...)
	proxytest.Obey(t, func(command string) string {
		var i int
		if _, err := fmt.Sscanf(command, "remove the first %d", &i); err == nil {
			var gone []change
			for k := range i {
				gone = append(gone, noService(name(k)))
			}
			n.tell(gone...)
		}
		switch command {
		case "closed": // how many ports are not open, and which is the first of them, and why
			closed, first := 0, ""
			for _, s := range n.Status() {
				if s.Err != nil {
					if closed++; closed == 1 {
						first = fmt.Sprintf(" from %d: %v", s.Port, s.Err)
					}
				}
			}
			return fmt.Sprint(closed, first)
		case "listeners": // the limit
			for _, l := range n.Limits() {
				if l.Name == "listeners" {
					return fmt.Sprint(l.Used, " of ", l.Max)
				}
			}
		}
		return "ready"
	})
}

// talkWith has clients talk to a service each, one after the other of those on ports, and keeps them all.
func talkWith(t *testing.T, ports []uint16, clients int) (talks []*proxytest.Talk) {
	t.Helper()
	for i := range clients {
		talk, err := talkTo(t, proxytest.On(ports[i%len(ports)]))
		if err != nil {
			t.Errorf("client %d: %v", i, err)
			return talks
		}
		talks = append(talks, talk)
	}
	return talks
}

// What 10,000 services leave of 20,000 descriptors, in a tenth of the size: room for 4,000 connections.
func TestAsManyServicesAsHalfTheDescriptorsLeaveRoomForConnections(t *testing.T) {
	const tenth = 10
	crowded(t, 20_000/tenth, 10_000/tenth, func(t *testing.T, c *crowd) {
		if got := c.Ask("closed"); got != "0" {
			t.Fatalf("ports that are not open: %s", got)
		}
		for _, talk := range talkWith(t, c.ports, 4_000/tenth) {
			talk.MustSay(t, "still here")
		}
	})
}

// Where there are more services than descriptors, those that have ports also have clients. It is known which do
// not, and why; the log has a few lines of it; and when others go they come by themselves.
func TestMoreServicesThanDescriptorsLeaveSomeThatWork(t *testing.T) {
	const descriptors, services = 400, 500
	const room = (descriptors - 128) * 3 / 4
	crowded(t, descriptors, services, func(t *testing.T, c *crowd) {
		want := fmt.Sprintf("%d from %d: out of descriptors: of the limit of %d, listeners may have %d and have them all", services-room, c.ports[room], descriptors, room)
		if got := c.Ask("closed"); got != want {
			t.Errorf("ports that are not open: %s; want %s", got, want)
		}
		if got, want := c.Ask("listeners"), fmt.Sprintf("%d of %d", room, room); got != want {
			t.Errorf("limit of listeners: %s; want %s", got, want)
		}
		for _, talk := range talkWith(t, c.ports[:room], 20) {
			talk.MustSay(t, "still here")
			talk.Conn.Close()
		}
		if proxytest.Listens(proxytest.On(c.ports[room])) {
			t.Errorf("port %d is open", c.ports[room])
		}
		if lines := c.LogLines(); lines > 20 {
			t.Errorf("%d lines are logged for %d ports that cannot be opened", lines, services-room)
		}
		c.Ask(fmt.Sprintf("remove the first %d", services-room))
		if got := c.Ask("closed"); got != "0" {
			t.Errorf("when there is room for all, ports that are not open: %s", got)
		}
		for _, talk := range talkWith(t, c.ports[services-room:], 20) {
			talk.MustSay(t, "still here")
		}
		if lines := c.LogLines(); lines > 50 {
			t.Errorf("%d lines are logged in all", lines)
		}
	})
}

// Ports that another program has, as when two proxies run on one machine, are news, but not ten thousand times.
func TestPortsThatAreAllTakenDoNotFillTheLogAndOpenOnceTheyAreFree(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		const services = 200
		n := newNode(t, cfg)
		web := served(t, proxytest.Identify("web"))
		var strangers []net.Listener
		var all []change
		for i := range services {
			port, name := proxytest.FreePort(t), fmt.Sprint("s", i)
			stranger, err := net.Listen("tcp", proxytest.On(port).String())
			if err != nil {
				t.Fatal(err)
			}
			defer stranger.Close()
			strangers = append(strangers, stranger)
			all = append(all, service(name, tcp(port)), endpoints(name, web))
		}
		lines := func() int64 { return glog.Stats.Info.Lines() + glog.Stats.Warning.Lines() + glog.Stats.Error.Lines() }
		before := lines()
		n.tell(all...)
		for _, s := range n.Status() {
			if s.Err == nil {
				t.Errorf("port %d is open, and another program has it", s.Port)
			}
		}
		for _, stranger := range strangers {
			stranger.Close()
		}
		proxytest.Eventually(t, func() bool {
			return !slices.ContainsFunc(n.Status(), func(s proxy.PortStatus) bool { return s.Err != nil })
		}, "every port to open")
		if got := lines() - before; got > 60 {
			t.Errorf("%d lines are logged for %d ports that could not be opened, and that could be in the end", got, services)
		}
		if got := proxytest.WhoAnswers(t, proxytest.On(n.Status()[services-1].Port)); got != "web" {
			t.Errorf("answered by %q", got)
		}
	})
}
