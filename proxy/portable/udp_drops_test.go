//go:build linux

package portable

import (
	"sync"
	"testing"

	"github.com/golang/glog"
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// What is dropped, and whose fault that is.

// What this machine cannot send just then is dropped, counted, and forgotten: neither the client nor
// the endpoint is to blame.
func TestWhatCannotBeSentCostsTheDatagramOnly(t *testing.T) {
	e := newUDPEngine(t, engine.Config{})
	s := serveUDP(t, e, enginetest.Identity(t, "1"))
	client := proxytest.DialUDP(t, s.Addr)
	before := client.Ask(t)
	sendsEnd := func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, session := range s.sessions {
			session.mu.Lock()
			io := &session.backend.io
			if err == nil {
				io.init(session.backend.conn)
			} else {
				io.write = func(uintptr) bool { io.outErr = err; return true }
			}
			session.mu.Unlock()
		}
	}
	for i, err := range []error{unix.EAGAIN, unix.ENOBUFS, unix.EPERM} {
		sendsEnd(err)
		client.Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropNotSent: uint64(i) + 1})
	}
	sendsEnd(nil)
	if got := client.Ask(t); got != before {
		t.Errorf("the session went from %v to %v", before, got)
	}
	if !s.Ownership.Load().Rotation.Endpoints()[0].Status().EjectedUntil.IsZero() {
		t.Error("the endpoint was blamed")
	}
}

// When a path turns out to carry less than thought (path MTU discovery, RFC 1191), the kernel says so
// once, by an error of whatever we ask of the socket next. That is news, not a refusal.
func TestNewsOfAShorterPathCostsNothing(t *testing.T) {
	server := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
	b, err := dialUDPBackend(&rotation.Endpoint{Addr: server.Addr}, server.Addr.IP, proxytest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer b.conn.Close()
	write, receive, news := b.io.write, b.io.receive, 0
	first := func(is *error, otherwise func(uintptr) bool) func(uintptr) bool {
		told := false
		return func(fd uintptr) bool {
			if !told {
				told, *is = true, unix.EMSGSIZE
				news++
				return true
			}
			return otherwise(fd)
		}
	}
	b.io.write, b.io.receive = first(&b.io.outErr, write), first(&b.io.inErr, receive)
	if err := b.send([]byte("question")); err != nil {
		t.Errorf("send: %v", err)
	}
	buf, n, err := b.receive(new(sync.Mutex), func(int, error) {})
	if err != nil || string(buf[:n]) != "question" || news != 2 {
		t.Errorf("received %d bytes, %v, after %d errors; want the echo after 2", n, err, news)
	}
}

func TestDatagramsThatTheQueueHasNoRoomForAreCounted(t *testing.T) {
	s := serveUDP(t, newUDPEngine(t, engine.Config{}), enginetest.Identity(t, "1"))
	client := proxytest.DialUDP(t, s.Addr)
	client.Ask(t)
	const many = 2000
	sendMany := func() {
		for range many {
			client.Write(make([]byte, 100))
		}
	}
	// Nothing can be read meanwhile, but one datagram.
	enginetest.Must(t, s.conn.SetReadBuffer(1<<16))
	s.mu.Lock()
	sendMany()
	s.mu.Unlock()
	client.AskOften(t)
	client.AskOften(t) // what is counted once stays counted once
	proxytest.Eventually(t, func() bool {
		lost, sent := s.Dropped()[traffic.DropQueueFull], s.Ownership.Load().Tally.DatagramsSent.Load()
		return lost > 0 && lost+sent >= many && lost+sent <= many+20
	}, "each of %d datagrams was sent on or counted as lost", many)
}

func TestRepliesThatNobodyHasReadWhenASessionLeavesItsEndpointAreCounted(t *testing.T) {
	endpoint := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("1"))
	s := serveUDP(t, newUDPEngine(t, engine.Config{}), endpoint.Addr)
	at := proxytest.DialUDP(t, s.Addr).Ask(t).Session
	s.mu.Lock()
	for _, session := range s.sessions {
		session.mu.Lock()
		for range 5 {
			enginetest.Must(t, endpoint.Send("late", at))
		}
		session.endLocked(traffic.Killed)
		session.mu.Unlock()
	}
	s.mu.Unlock()
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropEnded: 5})
}

// D32: an error of the port's socket must not leave an open port that no goroutine reads.
func TestReadingGoesOnAfterAnError(t *testing.T) {
	e := newUDPEngine(t, engine.Config{})
	s := serveUDP(t, e, enginetest.Identity(t, "1"))
	client := proxytest.DialUDP(t, s.Addr)
	client.Ask(t)
	before := glog.Stats.Warning.Lines()
	var pipe [2]int
	enginetest.Must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	raw, err := s.conn.SyscallConn()
	enginetest.Must(t, err)
	socket := -1
	enginetest.Must(t, raw.Control(func(fd uintptr) { // makes every read fail
		if socket, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.Dup3(pipe[0], int(fd), unix.O_CLOEXEC)
		}
	}))
	enginetest.Must(t, err)
	enginetest.Must(t, s.conn.SetReadDeadline(aLongTimeAgo)) // reads now
	proxytest.Eventually(t, func() bool { return glog.Stats.Warning.Lines() > before }, "a read to fail")
	enginetest.Must(t, raw.Control(func(fd uintptr) { err = unix.Dup3(socket, int(fd), unix.O_CLOEXEC) }))
	enginetest.Must(t, err)
	enginetest.Must(t, unix.Close(socket))
	client.AskOften(t)
}
