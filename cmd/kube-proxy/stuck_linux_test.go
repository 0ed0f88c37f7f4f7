package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
)

// TestALoopThatStandsStillMakesTheNodeNotAlive: a system call of a loop does not return, as if the kernel or its driver hung in it.
// /livez names the loop, and the service manager is told no more that the node is alive. When the call returns, both are
// as before, and so is the client.
func TestALoopThatStandsStillMakesTheNodeNotAlive(t *testing.T) {
	for _, c := range []struct {
		engine  string
		call    uint64 // that only a loop makes
		says    string
		keepsIt bool // the runtime does not know of the call: the loop keeps its processor
	}{
		{"epoll", unix.SYS_RECVFROM, "stands still: its present turn has lasted", true},
		{"ring", unix.SYS_IO_URING_ENTER, "stands still: it waits, and does not wake up", false},
	} {
		t.Run(c.engine, func(t *testing.T) { loopStandsStill(t, c.engine, c.call, c.says, c.keepsIt) })
	}
}

// loopStandsStill is the test of one engine. The program collects no garbage until the test asks for it: the collector has to wait for a loop
// that keeps its processor, and then all goroutines wait for the collector. So then no page is answered at all.
func loopStandsStill(t *testing.T, engine string, call uint64, says string, keepsProcessor bool) {
	s := newSite(t)
	manager, told := hearsAlive(t)
	healthz, at := operatorsURL(t)
	metrics, more := operatorsURL(t)
	p := start(t, []string{"NOTIFY_SOCKET=" + manager, "WATCHDOG_USEC=200000", "GOGC=off", "GOMAXPROCS=4", "GODEBUG=gctrace=1"},
		"-etcd_servers", s.etcd.URL(), "-bind_address=127.0.0.1", "-engine="+engine, "-dial_timeout=15s", "-dial_total_timeout=15s", "-profiling",
		"-healthz_bind_address="+healthz, "-metrics_bind_address="+metrics)
	s.opens(t)
	p.Stderr.Wait(t, "(forced)") // the one collection that the program asks for
	awaitPage(t, at+"/livez", 200, "ok")
	hold := func() (c *proxytest.Talk, release func()) {
		c = s.talk(t)
		return c, p.Hold(t, call, func() { fmt.Fprintln(c.Conn, "knock") })
	}
	turnsAgain := func(c *proxytest.Talk) {
		t.Helper()
		awaitPage(t, at+"/livez", 200, "ok")
		before := told.Load()
		proxytest.Eventually(t, func() bool { return told.Load() > before+1 }, "the service manager is told that the node is alive")
		fmt.Fprintln(c.Conn, "awake")
		lines := bufio.NewScanner(c.Conn)
		for lines.Scan() {
			if strings.HasSuffix(lines.Text(), ": awake") {
				return
			}
		}
		t.Errorf("the client is not served any more: %v", lines.Err())
	}

	c, release := hold()
	began := time.Now()
	awaitPage(t, at+"/livez", 503, says)
	t.Logf("/livez said so after %v", time.Since(began).Round(100*time.Millisecond))
	awaitPage(t, at+"/healthz", 503, "stands still")
	p.Stderr.Wait(t, "the service manager is not told that the node is alive: event loop ")
	release()
	turnsAgain(c)
	if !keepsProcessor {
		return
	}

	c, release = hold()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		see(t, more+"/debug/pprof/heap?gc=1")
	}()
	probe := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}} // gives up, as every probe does
	proxytest.Eventually(t, func() bool {
		response, err := probe.Get(at + "/livez")
		if err == nil {
			response.Body.Close()
		}
		return err != nil
	}, "no page is answered")
	release()
	<-asked
	turnsAgain(c)
}

// hearsAlive is a service manager's socket. It counts how often it is told that the node is alive.
func hearsAlive(t *testing.T) (path string, told *atomic.Int64) {
	t.Helper()
	path, told = filepath.Join(t.TempDir(), "notify"), new(atomic.Int64)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for buf := make([]byte, 1024); ; {
			n, err := socket.Read(buf)
			if err != nil {
				return // closed at the end of the test
			}
			if string(buf[:n]) == "WATCHDOG=1" {
				told.Add(1)
			}
		}
	}()
	t.Cleanup(func() {
		socket.Close()
		<-over
	})
	return path, told
}
