package epoll

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

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

// A connection that says little is not watched by epoll: the ring receives and sends for it. One that carries in bulk is, and comes back to the ring.
func TestSmallMessagesPassThroughTheRingAndBulkDoesNot(t *testing.T) {
	proxytest.NothingLeaks(t)
	before := watchedByEpoll(t)
	e, err := NewRing(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	enginetest.Must(t, err)
	e.loopCount = 1
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
				n += watched - 2 // the waker, and the port
			}
		}
		return n
	}

	littleIsSaid := func() bool {
		exchange(10)
		return sides() == 0
	}
	proxytest.Eventually(t, littleIsSaid, "both sides are in the ring") // at once, unless the endpoint had to be waited for
	exchange(8 << 20)
	if n := sides(); n == 0 {
		t.Error("after bulk, epoll watches neither side")
	}
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
