package epoll

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
	"kubeproxy/registry"
)

// A sessionPort is one UDP port of an epoll engine, and the service that owns it.
type sessionPort struct {
	*epollUDP
	enginetest.UDPRecord
	closed sync.Once
}

// serveSessions opens a port of a new engine, which ends with the test, for a service with these endpoints.
func serveSessions(t testing.TB, cfg engine.Config, endpoints ...registry.Addr) *sessionPort {
	t.Helper()
	proxytest.NothingLeaks(t)
	cfg.BindAddress = proxytest.Loopback
	e := New(cfg.WithDefaults(), admit.NewOwnPorts(cfg.BindAddress))
	s := new(sessionPort)
	s.Init(endpoints...)
	port := proxytest.FreePort(t)
	opened, err := e.Listen(enginetest.UDPPort(port), &s.Ownership)
	enginetest.Must(t, err)
	s.epollUDP, s.Addr = opened.(*epollUDP), proxytest.On(port)
	t.Cleanup(func() {
		s.Close()
		e.Cut()
		e.Drain(t.Context())
	})
	return s
}

// Close closes the port. It is safe to repeat.
func (s *sessionPort) Close() { s.closed.Do(s.epollUDP.Close) }

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
	s.epollUDP.sessions.requests.Call(func() {
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
	s.epollUDP.sessions.requests.Call(func() {
		for _, f := range s.clients {
			s.epollUDP.sessions.refused(f, err)
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
	s.epollUDP.sessions.requests.Call(sendMany)
	client.AskOften(t)
	client.AskOften(t) // what is counted once stays counted once
	sent := s.Ownership.Load().Tally.DatagramsSent.Load()
	if lost := s.Dropped()[traffic.DropQueueFull]; lost == 0 || lost+sent < many || lost+sent > many+20 {
		t.Errorf("of %d datagrams %d were sent on, and %d counted as lost", many, sent, lost)
	}
}
