//go:build linux

package portable

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
)

func TestRepliesOfAnEndpointThatWasLeftAreNotPassedOn(t *testing.T) {
	e := newUDPEngine(t, engine.Config{})
	left := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("left"))
	s := serveUDP(t, e, left.Addr, enginetest.Identity(t, "2"))
	client := proxytest.DialUDP(t, s.Addr)
	old := client.Ask(t).Session
	s.SetOf("dns", s.Ownership.Load().Rotation.Endpoints()[1].Addr)
	if got := client.Ask(t).Name; got != "2" {
		t.Fatalf("answered by %s", got)
	}
	for range 10 {
		left.Send("late", old) // refused: the endpoint has gone
	}
	// And one that was being read just when the session left:
	owner := s.Ownership.Load()
	s.mu.Lock()
	for _, session := range s.sessions {
		session.mu.Lock()
		session.foundLocked(&udpBackend{Visit: udp.Visit{Endpoint: &rotation.Endpoint{Rotation: owner.Rotation}}}, len("late"), nil)
		session.mu.Unlock()
	}
	s.mu.Unlock()
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropEnded: 1})
	if got, err := client.Exchange([]byte("the next answer")); err != nil || !bytes.HasSuffix(got, []byte("the next answer")) {
		t.Errorf("got %q, %v", got, err)
	}
}

// Where nothing is ever answered, an endpoint that has not refused for a while counts as reached: when
// it does refuse, others that refused before are offered again.
func TestASessionThatHasSettledIsOfferedAllEndpointsAnew(t *testing.T) {
	returns := proxytest.At(proxytest.On(proxytest.FreePort(t)))
	dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := serveUDP(t, newUDPEngine(t, engine.Config{}), returns, dies.Addr)
	client := proxytest.DialUDP(t, s.Addr)
	client.Write([]byte("1"))
	proxytest.Eventually(t, func() bool { return dies.Received() == 1 }, "a datagram at the second endpoint")
	received := make(chan string, 2) // "1" may be sent again before "2": see udp.Session.Refused
	proxytest.ServeUDP(t, returns.String(), func(payload []byte, _ netip.AddrPort) []byte {
		received <- string(payload)
		return nil
	})
	s.mu.Lock()
	for _, session := range s.sessions {
		session.mu.Lock()
		session.backend.Began -= udp.SettleTime
		session.mu.Unlock()
	}
	s.mu.Unlock()
	dies.Close()
	client.Write([]byte("2"))
	for proxytest.Receive(t, received, "the datagram at the endpoint that returned") != "2" {
	}
	s.HasDropped(t, map[traffic.DropReason]uint64{})
}

// What was answered is not sent again, whatever happens to the endpoint then.
func TestWhatWasAnsweredIsNotSentAgain(t *testing.T) {
	next := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("2"))
	s := serveUDP(t, newUDPEngine(t, engine.Config{}), enginetest.Identity(t, "1"), next.Addr)
	client := proxytest.DialUDP(t, s.Addr)
	client.Ask(t)
	err := errors.New("a refusal that was long on its way")
	s.mu.Lock()
	for _, session := range s.sessions {
		session.mu.Lock()
		session.refusedLocked(session.backend, err)
		session.mu.Unlock()
	}
	s.mu.Unlock()
	if got := client.Ask(t).Name; got != "2" {
		t.Errorf("answered by %s", got)
	}
	if n := next.Received(); n != 1 {
		t.Errorf("the next endpoint was sent %d datagrams; want 1", n)
	}
}

// The kernel reports a refusal once. Were another datagram sent after it was read and before the session knows of it, that one would be the
// last that was sent, and alone be sent again.
func TestNothingIsSentBetweenTheReadOfARefusalAndItsNote(t *testing.T) {
	e := newUDPEngine(t, engine.Config{})
	for range 20 {
		dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		s := serveUDP(t, e, dies.Addr)
		session := s.letIn(admit.SessionKey{}, s.Ownership.Load())
		first, _ := session.Next(0)
		b := session.try(first)
		if b == nil {
			session.stop(traffic.Evicted)
			session.run(nil, nil) // or the port would wait for its end
			t.Fatal("the session got no socket to the endpoint")
		}
		dies.Close()
		read, reading, begun := b.io.receive, make(chan struct{}), false
		b.io.receive = func(fd uintptr) bool {
			if !begun {
				begun = true
				close(reading)
			}
			return read(fd)
		}
		session.mu.Lock() // as it is while a datagram is sent
		if err := b.send([]byte("1")); err != nil {
			t.Fatal(err)
		}
		go session.run(nil, b)
		<-reading
		err2 := b.send([]byte("2"))
		session.mu.Unlock()
		session.stop(traffic.Evicted)
		<-session.done
		s.Close()
		if err2 == nil {
			t.Fatal("a datagram was sent though the refusal of the one before had been read")
		}
	}
}
