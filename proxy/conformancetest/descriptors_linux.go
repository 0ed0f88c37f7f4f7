package conformancetest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Running out of descriptors.

// What tests tell the process in which descriptors are few.
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
func (s suite) scarce(t *testing.T, test func(t *testing.T, s *scarcity)) {
	s.scarceWith(t, proxy.Config{}, test)
}

// scarceWith is [scarce] with limits other than the default.
func (s suite) scarceWith(t *testing.T, limits proxy.Config, test func(t *testing.T, s *scarcity)) {
	cfg := s.config()
	cfg.MaxConnections = limits.MaxConnections
	cfg.MaxConnectionsPerService = 1 << 20 // all clients are of one service
	if proxytest.Inside(t) {
		serveScarce(t, cfg)
		return
	}
	proxytest.NothingLeaks(t)
	web := []registry.Addr{served(t, proxytest.Chat("1")), served(t, proxytest.Chat("2"))}
	dns := []registry.Addr{servedUDP(t, "1"), servedUDP(t, "2")}
	few := &scarcity{t: t, Web: proxytest.On(proxytest.FreePort(t)), DNS: proxytest.On(proxytest.FreePort(t))}
	setting, err := json.Marshal(scarceSetting{few.Web.Port(), few.DNS.Port(), web, dns})
	if err != nil {
		t.Fatal(err)
	}
	few.Process = proxytest.Start(t, fewEnv+"="+string(setting))
	if got := few.Ask("ready?"); got != "ready" {
		t.Fatalf("the proxy with few descriptors: %q", got)
	}
	test(t, few)
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
		case "reserve": // reports whether others find descriptors: etcd, logs, HTTP
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
			for _, r := range traffic.Reasons() {
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
	if used, in := time.Duration(s.number("cpu")-cpu), time.Since(start); used > in/3 {
		s.t.Errorf("%s: the processor was busy for %v in %v", what, used, in)
	}
}

// By default no client has to wait for descriptors: the limit of connections is reached first, and who
// is too many hears so at once. Those that are there notice nothing.
func (s suite) TestMoreClientsThanTheLimitAreRefusedBeforeDescriptorsRunOut(t *testing.T) {
	const clients = fewDescriptors
	s.scarce(t, func(t *testing.T, s *scarcity) {
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
		// The last twentieth of the limit is for services below their share (C24), and web is the only one.
		if got, want := s.Ask("ended"), fmt.Sprintf("service_limit: %d", refused); got != want {
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
func (s suite) TestMoreClientsThanDescriptorsWaitTheirTurn(t *testing.T) { // D38
	const clients = fewDescriptors
	s.scarceWith(t, proxy.Config{Config: engine.Config{MaxConnections: clients}}, func(t *testing.T, s *scarcity) {
		idle := s.number("sockets")
		var answered atomic.Int64
		leave := make(chan struct{})
		first := make(chan *proxytest.Talk, clients) // those that were answered before any left
		var asking sync.WaitGroup
		for range clients {
			talk := proxytest.TalkTo(t, s.Web) // the kernel lets it in even when the proxy does not accept
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
		// The other process seems settled before, where it is given no processor for a while.
		proxytest.Eventually(t, func() bool { return answered.Load() >= clients/8 }, "answers to an eighth of the clients")
		fits := proxytest.Settled(t, answered.Load, 300*time.Millisecond)
		if fits > clients/2 {
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
func (s suite) TestWithoutASingleDescriptorTheProxyStaysCalmAndRecovers(t *testing.T) { // D38
	s.scarce(t, func(t *testing.T, s *scarcity) {
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
func (s suite) TestMoreUDPClientsThanDescriptorsAreServed(t *testing.T) { // D44
	s.scarce(t, func(t *testing.T, s *scarcity) {
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

func (s suite) TestClientsThatCannotBeServedDoNotFillTheLog(t *testing.T) {
	s.scarce(t, func(t *testing.T, s *scarcity) {
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
