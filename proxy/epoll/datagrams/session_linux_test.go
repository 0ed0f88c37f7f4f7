package datagrams

import (
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
	"kubeproxy/registry"
)

// A sessionPort is one UDP port of a loop, and the service that owns it.
type sessionPort struct {
	*port
	enginetest.UDPRecord
	closed sync.Once
}

// serveSessions opens a port of a new loop, which ends with the test, for a service with these endpoints.
func serveSessions(t testing.TB, cfg engine.Config, endpoints ...registry.Addr) *sessionPort {
	t.Helper()
	proxytest.NothingLeaks(t)
	l := startLoop(t, cfg)
	s := new(sessionPort)
	s.Init(endpoints...)
	number := proxytest.FreePort(t)
	opened, err := l.ListenBy(enginetest.UDPPort(number), &s.Ownership, nil, l.sessions.Open)
	enginetest.Must(t, err)
	s.port, s.Addr = opened.(*port), proxytest.On(number)
	t.Cleanup(s.Close)
	return s
}

// Close closes the port. It is safe to repeat.
func (s *sessionPort) Close() { s.closed.Do(s.port.Close) }

// Where nothing is ever answered, an endpoint that has not refused for a while counts as reached: when
// it does refuse, others that refused before are offered again.
func TestASessionOfALoopThatHasSettledIsOfferedAllEndpointsAnew(t *testing.T) {
	returns := proxytest.At(proxytest.On(proxytest.FreePort(t)))
	dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := serveSessions(t, engine.Config{}, returns, dies.Addr)
	client := proxytest.DialUDP(t, s.Addr)
	client.Write([]byte("1"))
	proxytest.Eventually(t, func() bool { return dies.Received() == 1 }, "a datagram at the second endpoint")
	returned := proxytest.ServeUDP(t, returns.String(), proxytest.MuteUDP)
	s.port.sessions.Requests.Call(func() {
		for _, f := range s.clients {
			f.visit.Began -= udp.SettleTime
		}
	})
	dies.Close()
	client.Write([]byte("2"))
	proxytest.Eventually(t, func() bool { return returned.Received() == 1 }, "the datagram at the endpoint that returned")
	s.HasDropped(t, map[traffic.DropReason]uint64{})
}

// What was answered is not sent again, whatever happens to the endpoint then.
func TestADatagramThatWasAnsweredIsNotSentAgain(t *testing.T) {
	next := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("2"))
	s := serveSessions(t, engine.Config{}, enginetest.Identity(t, "1"), next.Addr)
	client := proxytest.DialUDP(t, s.Addr)
	client.Ask(t)
	err := errors.New("a refusal that was long on its way")
	s.port.sessions.Requests.Call(func() {
		for _, f := range s.clients {
			s.port.sessions.refused(f, err)
		}
	})
	if got := client.Ask(t).Name; got != "2" {
		t.Errorf("answered by %s", got)
	}
	if n := next.Received(); n != 1 {
		t.Errorf("the next endpoint was sent %d datagrams; want 1", n)
	}
}

func TestDatagramsThatTheQueueOfALoopHasNoRoomForAreCounted(t *testing.T) {
	s := serveSessions(t, engine.Config{}, enginetest.Identity(t, "1"))
	client := proxytest.DialUDP(t, s.Addr)
	client.Ask(t)
	const many = 2000
	sendMany := func() {
		for range many {
			client.Write(make([]byte, 100))
		}
	}
	// Nothing can be read meanwhile, but one datagram.
	enginetest.Must(t, unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<16))
	s.port.sessions.Requests.Call(sendMany)
	client.AskOften(t)
	client.AskOften(t) // what is counted once stays counted once
	proxytest.Eventually(t, func() bool {
		lost, sent := s.Dropped()[traffic.DropQueueFull], s.Ownership.Load().Tally.DatagramsSent.Load()
		return lost > 0 && lost+sent >= many && lost+sent <= many+20
	}, "each of %d datagrams was sent on or counted as lost", many)
}

func TestRepliesThatNobodyHasReadWhenASessionLeavesItsEndpointAreCounted(t *testing.T) {
	endpoint := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("1"))
	s := serveSessions(t, engine.Config{}, endpoint.Addr)
	at := proxytest.DialUDP(t, s.Addr).Ask(t).Session
	s.port.sessions.Requests.Call(func() {
		for range 5 {
			enginetest.Must(t, endpoint.Send("late", at))
		}
		for _, f := range s.clients {
			s.port.sessions.end(f, traffic.Killed)
		}
	})
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropEnded: 5})
}

// When a port closes, its sessions end a few at a time, and all of them before close returns.
func TestTheSessionsOfAPortThatClosesEndAFewInATurn(t *testing.T) {
	s := serveSessions(t, engine.Config{}, enginetest.Identity(t, "a"))
	u := s.port.sessions
	const clients = 3 * reactor.PlacesAStep
	for range clients {
		proxytest.DialUDP(t, s.Addr).Ask(t)
	}
	ended := make(map[uint64]int)
	u.Requests.Call(func() {
		u.Engine.Cfg.Ended = func(traffic.Ending) { ended[u.Turn.Number]++ }
	})
	s.Close()
	sum := 0
	for turn, n := range ended {
		if sum += n; n > reactor.PlacesAStep {
			t.Errorf("turn %d ended %d sessions; want %d at most", turn, n, reactor.PlacesAStep)
		}
	}
	if sum != clients {
		t.Errorf("%d sessions have ended when close returned; want all %d", sum, clients)
	}
}

// A port that cannot be read is left alone for a while, instead of being tried in every turn.
func TestAUDPPortThatCannotBeReadIsPaused(t *testing.T) {
	s := serveSessions(t, engine.Config{}, enginetest.Identity(t, "a"))
	p := s.port
	u := p.sessions
	var err error
	u.Requests.Call(func() {
		fd := p.FD
		p.FD, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) // ENOTSOCK
		if err == nil {
			u.receive(p)
			socket.Close(p.FD)
		}
		p.FD = fd
		if u.Pauses.Due() == monotonic.Never {
			t.Error("the port is not paused")
		}
	})
	enginetest.Must(t, err)
	proxytest.DialUDP(t, s.Addr).Ask(t)
}

// The wait of a session that was evicted ends with it: a stranger can have thousands evicted before the time of their waits is over.
func TestASessionThatIsEvictedWaitsNoLonger(t *testing.T) {
	s := serveSessions(t, engine.Config{})
	s.port.sessions.Requests.Call(func() { s.Ownership.Load().Terms.Timeouts.Wait = time.Hour }) // the loop reads it
	client := proxytest.DialUDP(t, s.Addr)
	client.Write([]byte("1"))
	stopped := false
	proxytest.Eventually(t, func() (waits bool) {
		s.port.sessions.Requests.Call(func() {
			for _, f := range s.clients {
				if waits = f.stopWaiting != nil; waits {
					stop := f.stopWaiting
					f.stopWaiting = func() { stopped = true; stop() }
					s.port.sessions.evict(f)
				}
			}
		})
		return waits
	}, "the session to wait")
	if !stopped {
		t.Error("it still waits")
	}
}
