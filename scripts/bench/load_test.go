//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
)

// brief is long enough for the loads to do something, also on a busy machine.
const brief = 100 * time.Millisecond

// startBackends runs the backends, in a process of their own, until the test ends.
func startBackends(t *testing.T) ports {
	t.Helper()
	base, err := freePorts(netip.IPv4Unspecified(), 4)
	if err != nil {
		t.Fatal(err)
	}
	p, err := start(t.TempDir(), "backends", os.Args[0], "backends", strconv.Itoa(int(base)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	if err := p.await(10*time.Second, func() bool { return p.said("ready") }); err != nil {
		t.Fatal(err)
	}
	return portsFrom(base)
}

func conductFor(t *testing.T, loads ...load) window {
	t.Helper()
	w, err := conduct(t.Context(), []int{os.Getpid()}, brief, brief, loads...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestEveryLoadGetsItsAnswers(t *testing.T) {
	at := startBackends(t)
	for _, c := range []struct {
		name  string
		load  load
		times bool // it measures latency
	}{
		{"round trips", newEchoLoad(unix.SOCK_STREAM, backendsAt(at.echo), 32), true},
		{"round trips of one", newEchoLoad(unix.SOCK_STREAM, backendsAt(at.echo), 1), true},
		{"UDP", newEchoLoad(unix.SOCK_DGRAM, backendsAt(at.udp), 32), true},
		{"connect and reset", newConnectLoad(backendsAt(at.echo), 32, false), true},
		{"connect and finish", newConnectLoad(backendsAt(at.echo), 32, true), true},
		{"bulk", newBulkLoad(backendsAt(at.bulk), 2), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := conductFor(t, c.load)
			score := c.load.score()
			if score.failed > 0 || w.done[0] < 32 {
				t.Errorf("%v done, %d failed: %s", w.done[0], score.failed, score.why)
			}
			if p50 := score.latency.quantile(0.5); c.times && (p50 <= 0 || p50 > 1) {
				t.Errorf("half of them took at most %v s", p50)
			}
			if w.proxyCPU <= 0 || w.elapsed < brief {
				t.Errorf("processor time %v in %v", w.proxyCPU, w.elapsed)
			}
		})
	}
}

func TestARateIsKept(t *testing.T) {
	at := startBackends(t)
	l := newEchoLoad(unix.SOCK_STREAM, backendsAt(at.echo), 32)
	l.rate = 2000
	started := time.Now()
	conductFor(t, l)
	// Over all of its life: on a busy machine it may come late, and make up for it.
	most := l.rate * time.Since(started).Seconds()
	if least, done := l.rate*brief.Seconds(), float64(l.done.Load()); done < least || done > most || l.failed > 0 {
		t.Errorf("%.0f messages, %d failed (%s); want between %.0f and %.0f", done, l.failed, l.why, least, most)
	}
}

// A message that had to wait for its turn has waited since it was due, however quick its own round
// trip is.
func TestWithARateTimeBeginsWhenAMessageIsDue(t *testing.T) {
	slow := proxytest.ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		buf := make([]byte, messageSize)
		for {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond) // what the service takes
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	})
	l := newEchoLoad(unix.SOCK_STREAM, []netip.AddrPort{slow.Addr.IP}, 1)
	l.rate = 1000 // ten times what it carries
	conductFor(t, l)
	if p50 := l.latency.quantile(0.5); p50 < 0.05 {
		t.Errorf("half of the messages took at most %v s; they were due much longer", p50)
	}
}

func TestWrongAnswersAreFailures(t *testing.T) {
	wrong := proxytest.ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		buf := make([]byte, messageSize)
		for {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return
			}
			binary.LittleEndian.PutUint64(buf, 1<<40)
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	})
	l := newEchoLoad(unix.SOCK_STREAM, []netip.AddrPort{wrong.Addr.IP}, 1)
	conductFor(t, l)
	if l.failed == 0 || !strings.Contains(l.why, "something else") {
		t.Errorf("%d failures: %q", l.failed, l.why)
	}
}

func TestConnectionsThatBreakAreFailures(t *testing.T) {
	breaks := proxytest.ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		_, _ = conn.Read(make([]byte, messageSize)) // and closes, without an answer
	})
	to := []netip.AddrPort{breaks.Addr.IP}
	for name, c := range map[string]struct {
		load load
		why  string
	}{
		"round trips": {newEchoLoad(unix.SOCK_STREAM, to, 4), "reading an answer"},
		"connect":     {newConnectLoad(to, 4, false), "after 0 bytes"},
		"bulk":        {newBulkLoad(to, 2), "receiving"},
	} {
		conductFor(t, c.load)
		if score := c.load.score(); score.failed == 0 || score.done.Load() > 0 || !strings.Contains(score.why, c.why) {
			t.Errorf("%s: %d done, %d failures: %q", name, score.done.Load(), score.failed, score.why)
		}
	}
}

func TestSilenceIsAFailure(t *testing.T) {
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	to := []netip.AddrPort{silent.LocalAddr().(*net.UDPAddr).AddrPort()}
	l := newEchoLoad(unix.SOCK_DGRAM, to, 3)
	conductFor(t, l)
	if l.failed != 3 || !strings.Contains(l.why, "no answer") {
		t.Errorf("%d failures: %q; want one for each client", l.failed, l.why)
	}
	if s := operations(window{done: []float64{0}, elapsed: brief}, &l.tally); s.Failed < 3 {
		t.Errorf("the sample is %+v", s)
	}
}

// Nobody waits for the end of a measurement that nobody wants any more.
func TestLoadsEndWhenToldTo(t *testing.T) {
	at := startBackends(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(brief, cancel)
	started := time.Now()
	_, err := conduct(ctx, nil, time.Hour, time.Hour, newEchoLoad(unix.SOCK_STREAM, backendsAt(at.echo), 4), newBulkLoad(backendsAt(at.bulk), 1))
	if err == nil || time.Since(started) > 5*time.Second {
		t.Errorf("ended after %v: %v", time.Since(started), err)
	}
}

func TestABurstIsCounted(t *testing.T) {
	at := startBackends(t)
	sent, answered, err := burst{clients: 20, each: 10}.fire(backendsAt(at.udp))
	if sent != 200 || answered != 200 || err != nil {
		t.Errorf("sent %d, answered %d, %v; want 200 of each", sent, answered, err)
	}
}

func TestDropsAreThoseOfTheProcesssSockets(t *testing.T) {
	const text = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  1: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 111 2 0000000000000000 5
  2: 0100007F:0036 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 222 2 0000000000000000 7
  3: 0100007F:0037 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 333 2 0000000000000000 11
`
	if got, err := parseDrops(text, map[string]bool{"111": true, "333": true}); got != 16 || err != nil {
		t.Errorf("got %d, %v; want 16", got, err)
	}
	deaf, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	if err := deaf.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	before, err := kernelDrops([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (burst{clients: 10, each: 100}).fire([]netip.AddrPort{deaf.LocalAddr().(*net.UDPAddr).AddrPort()}); err != nil {
		t.Fatal(err)
	}
	after, err := kernelDrops([]int{os.Getpid()})
	if dropped := after - before; err != nil || dropped < 900 || dropped > 1000 {
		t.Errorf("of 1000 datagrams to a socket that nobody reads the kernel dropped %.0f (%v)", dropped, err)
	}
}

func TestAProbeTellsWhoAnswersAndWhen(t *testing.T) {
	at := startBackends(t)
	asks := &probe{to: backendsAt(at.stamp)[2], every: time.Millisecond, heard: make(chan stamp, 1)}
	began := sinceBoot()
	ended := make(chan error, 1)
	go func() { ended <- asks.run() }()
	s := <-asks.heard
	if s.endpoint != 3 || s.asked < began || s.asked > sinceBoot() {
		t.Errorf("got %+v; want endpoint 3, asked between %v and now", s, began)
	}
	asks.stopped.Store(true)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestACrowdIsHeldOpen(t *testing.T) {
	var held atomic.Int32
	echo := proxytest.ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		held.Add(1)
		defer held.Add(-1)
		_, _ = io.Copy(conn, conn) // ends with the reset
	})
	var c crowd
	for _, n := range []int{10, 30} {
		if err := c.grow(t.Context(), []netip.AddrPort{echo.Addr.IP}, n); err != nil {
			t.Fatal(err)
		}
		if got := held.Load(); got != int32(n) {
			t.Errorf("%d connections are held; want %d", got, n)
		}
	}
	c.disperse()
	proxytest.Eventually(t, func() bool { return held.Load() == 0 }, "the connections are still held")
}
