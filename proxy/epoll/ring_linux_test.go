package epoll

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
)

// watchedByEpoll returns what each epoll descriptor of this process watches: how many descriptors (proc(5), fdinfo).
func watchedByEpoll(t *testing.T) map[string]int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	enginetest.Must(t, err)
	watched := make(map[string]int)
	for _, path := range all {
		if to, err := os.Readlink(path); err != nil || to != "anon_inode:[eventpoll]" {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + filepath.Base(path))
		enginetest.Must(t, err)
		watched[path] = bytes.Count(info, []byte("tfd:"))
	}
	return watched
}

// carried returns how many connections each loop of an engine carries.
func carried(e *Engine) []int {
	var all []int
	for _, l := range e.running() {
		l.requests.Call(func() { all = append(all, l.conns.Used()) })
	}
	return all
}

// A connection that goes on in bulk moves to a loop that has no ring, and stays there until its end. The bytes of both directions arrive in order.
func TestAConnectionThatGoesOnInBulkMovesToALoopForBulk(t *testing.T) {
	proxytest.NothingLeaks(t)
	e, err := NewRing(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	enginetest.Must(t, err)
	e.loopCount, e.bulkCount = 1, 1
	up, down := make([]byte, 64<<20), make([]byte, 64<<20)
	rand.NewChaCha8([32]byte{1}).Read(up)
	rand.NewChaCha8([32]byte{2}).Read(down)
	exchange := func(c net.Conn, say, want []byte) error {
		said := make(chan error, 1)
		go func() {
			_, err := c.Write(say)
			said <- err
		}()
		got := make([]byte, len(want))
		_, err := io.ReadFull(c, got)
		if err == nil && !bytes.Equal(got, want) {
			err = errors.New("other bytes than were sent")
		}
		return errors.Join(err, <-said)
	}
	heard := make(chan error, 1)
	addr := openEpollPort(t, e, func(c *net.TCPConn) {
		err := exchange(c, down, up)
		_, _ = io.Copy(c, c)
		heard <- err
	})
	conn, err := net.Dial("tcp", addr)
	enginetest.Must(t, err)
	defer conn.Close()
	client := conn.(*net.TCPConn)
	little := []byte("and still")
	enginetest.Must(t, exchange(client, up, down))
	for tries := 0; tries < 5 && !slices.Equal(carried(e), []int{0, 1}); tries++ {
		// A loop that empties the buffers again and again, as those that fill them are late, sees no bulk. The endpoint sends back what it is sent now.
		enginetest.Must(t, exchange(client, up, up))
	}
	for range 100 {
		enginetest.Must(t, exchange(client, little, little))
	}
	if got := carried(e); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("the loops carry %d; want the connection to have moved to the one for bulk", got)
	}
	enginetest.Must(t, client.CloseWrite())
	if n, err := client.Read(little); n != 0 || err != io.EOF {
		t.Errorf("after the endpoint's FIN the client got %d bytes, %v", n, err)
	}
	enginetest.Must(t, <-heard)
	proxytest.Eventually(t, func() bool { return slices.Equal(carried(e), []int{0, 0}) }, "the connection has ended")
	if n := e.Connections.Load(); n != 0 {
		t.Errorf("%d connections are counted in the end", n)
	}
}

// A connection that has moved is cut like the others when the time to drain is up.
func TestAConnectionThatHasMovedIsCutInTheEnd(t *testing.T) {
	proxytest.NothingLeaks(t)
	e, err := NewRing(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	enginetest.Must(t, err)
	e.loopCount, e.bulkCount = 1, 1
	port := proxytest.FreePort(t)
	to := proxytest.ServeTCP(t, "127.0.0.1:0", func(c *net.TCPConn) {
		piece := make([]byte, 1<<20)
		for {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
	}).Addr
	s, err := e.Listen(enginetest.TCPPort(port), enginetest.OwnerOf(enginetest.NewRotation(to)))
	enginetest.Must(t, err)
	client, err := net.Dial("tcp", proxytest.On(port).String())
	enginetest.Must(t, err)
	defer client.Close()
	heard := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, client)
		heard <- err
	}()
	proxytest.Eventually(t, func() bool { return slices.Equal(carried(e), []int{0, 1}) }, "the connection has moved")
	s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.Drain(ctx)
	if err := proxytest.Receive(t, heard, "the end"); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client heard %v; want a reset", err)
	}
}

// A connection that says little is not watched by epoll: the ring receives and sends for it. One that carries in bulk is, and comes back to the ring.
func TestSmallMessagesPassThroughTheRingAndBulkDoesNot(t *testing.T) {
	proxytest.NothingLeaks(t)
	before := watchedByEpoll(t)
	e, err := NewRing(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	enginetest.Must(t, err)
	e.loopCount, e.bulkCount = 1, 1
	client, err := net.Dial("tcp", openEpollPort(t, e, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	enginetest.Must(t, err)
	defer client.Close()
	exchange := func(n int) {
		t.Helper()
		said := bytes.Repeat([]byte("x"), n)
		go func() { _, _ = client.Write(said) }()
		if _, err := io.ReadFull(client, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	sides := func() (n int) {
		for path, watched := range watchedByEpoll(t) {
			if _, ok := before[path]; !ok {
				n += watched
			}
		}
		return n - 4 // the wakers of both loops, the port, and what the door of the loop for bulk watches
	}

	littleIsSaid := func() bool {
		exchange(10)
		return sides() == 0
	}
	proxytest.Eventually(t, littleIsSaid, "both sides are in the ring") // at once, unless the endpoint had to be waited for
	// At once, unless all of it came in small pieces. It is too little to have the connection move: see movesAfter in package relay.
	proxytest.Eventually(t, func() bool {
		exchange(192 << 10)
		return sides() > 0
	}, "after bulk, epoll watches a side")
	proxytest.Eventually(t, littleIsSaid, "both sides come back to the ring")
	for range 1000 {
		exchange(100)
	}
	e.mu.Lock()
	buffers := e.loops[0].relays.Buffers
	requests := &e.loops[0].requests
	e.mu.Unlock()
	proxytest.Eventually(t, func() (back bool) {
		requests.Call(func() { back = buffers.Lent() == 0 })
		return back
	}, "all buffers come back")
}
