//go:build linux

package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/process"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/scripts/internal/measure"
)

// TestMain is also the backends that the tests start.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "backends" {
		if err := RunBackends(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// brief is long enough for the loads to do something, also on a busy machine.
const brief = 100 * time.Millisecond

// startBackends runs the backends, in a process of their own, until the test ends.
func startBackends(t *testing.T) Ports { return startBackendsAs(t, Light) }

func startBackendsAs(t *testing.T, written Clients) Ports {
	t.Helper()
	base, err := measure.FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	ps := &process.Group{Dir: t.TempDir()}
	t.Cleanup(func() {
		if err := ps.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := StartBackends(ps, os.Args[0], base, written); err != nil {
		t.Fatal(err)
	}
	return PortsFrom(base)
}

func conductFor(t *testing.T, loads ...Load) Window {
	t.Helper()
	w, err := Conduct(t.Context(), []int{os.Getpid()}, brief, brief, loads...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestEveryLoadGetsItsAnswers(t *testing.T) {
	at := startBackends(t)
	for _, c := range []struct {
		name  string
		load  Load
		times bool // it measures latency
	}{
		{"round trips", NewEcho(unix.SOCK_STREAM, BackendsAt(at.Echo), 32), true},
		{"round trips of one", NewEcho(unix.SOCK_STREAM, BackendsAt(at.Echo), 1), true},
		{"UDP", NewEcho(unix.SOCK_DGRAM, BackendsAt(at.UDP), 32), true},
		{"connect and reset", NewConnect(BackendsAt(at.Echo), 32, false), true},
		{"connect and finish", NewConnect(BackendsAt(at.Echo), 32, true), true},
		{"bulk", NewBulk(BackendsAt(at.Bulk), 2), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := conductFor(t, c.load)
			score := c.load.Score()
			if score.Failed > 0 || w.Done[0] < 32 {
				t.Errorf("%v done, %d failed: %s", w.Done[0], score.Failed, score.Why)
			}
			if p50 := score.Latency.Quantile(0.5); c.times && (p50 <= 0 || p50 > 1) {
				t.Errorf("half of them took at most %v s", p50)
			}
			if w.ProxyCPU <= 0 || w.Elapsed < brief {
				t.Errorf("processor time %v in %v", w.ProxyCPU, w.Elapsed)
			}
		})
	}
}

// Clients of goroutines do the same work, with backends of either kind, and tell the same failures.
func TestGoroutinesGetTheirAnswers(t *testing.T) {
	for _, written := range []Clients{Light, Goroutines} {
		at := startBackendsAs(t, written)
		for name, load := range map[string]Load{
			"round trips":        Goroutines.RoundTrips(unix.SOCK_STREAM, BackendsAt(at.Echo), 32),
			"UDP":                Goroutines.RoundTrips(unix.SOCK_DGRAM, BackendsAt(at.UDP), 32),
			"connect and reset":  Goroutines.Connections(BackendsAt(at.Echo), 32, false),
			"connect and finish": Goroutines.Connections(BackendsAt(at.Echo), 32, true),
			"light clients":      Light.RoundTrips(unix.SOCK_STREAM, BackendsAt(at.Echo), 32),
		} {
			w := conductFor(t, load)
			score := load.Score()
			if score.Failed > 0 || w.Done[0] < 32 || score.Latency.Count == 0 {
				t.Errorf("%s, backends: %s: %v done, %d failed: %s", name, written, w.Done[0], score.Failed, score.Why)
			}
		}
	}
}

func TestFailuresOfGoroutinesAreCounted(t *testing.T) {
	breaks := proxytest.ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		_, _ = conn.Read(make([]byte, messageSize)) // and closes, without an answer
	})
	to := []netip.AddrPort{breaks.Addr.IP}
	for name, load := range map[string]Load{
		"round trips": Goroutines.RoundTrips(unix.SOCK_STREAM, to, 4),
		"connect":     Goroutines.Connections(to, 4, false),
	} {
		conductFor(t, load)
		if score := load.Score(); score.Failed < 4 || score.Done.Load() > 0 || !strings.Contains(score.Why, "reading an answer") {
			t.Errorf("%s: %d done, %d failures: %q", name, score.Done.Load(), score.Failed, score.Why)
		}
	}
}

func TestARateIsKept(t *testing.T) {
	at := startBackends(t)
	l := NewEcho(unix.SOCK_STREAM, BackendsAt(at.Echo), 32)
	l.Rate = 2000
	started := time.Now()
	conductFor(t, l)
	// Over all of its life: on a busy machine it may come late, and make up for it.
	most := l.Rate * time.Since(started).Seconds()
	if least, done := l.Rate*brief.Seconds(), float64(l.Done.Load()); done < least || done > most || l.Failed > 0 {
		t.Errorf("%.0f messages, %d failed (%s); want between %.0f and %.0f", done, l.Failed, l.Why, least, most)
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
	l := NewEcho(unix.SOCK_STREAM, []netip.AddrPort{slow.Addr.IP}, 1)
	l.Rate = 1000 // ten times what it carries
	conductFor(t, l)
	if p50 := l.Latency.Quantile(0.5); p50 < 0.05 {
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
	l := NewEcho(unix.SOCK_STREAM, []netip.AddrPort{wrong.Addr.IP}, 1)
	conductFor(t, l)
	if l.Failed == 0 || !strings.Contains(l.Why, "something else") {
		t.Errorf("%d failures: %q", l.Failed, l.Why)
	}
}

func TestConnectionsThatBreakAreFailures(t *testing.T) {
	breaks := proxytest.ServeTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		_, _ = conn.Read(make([]byte, messageSize)) // and closes, without an answer
	})
	to := []netip.AddrPort{breaks.Addr.IP}
	for name, c := range map[string]struct {
		load Load
		why  string
	}{
		"round trips": {NewEcho(unix.SOCK_STREAM, to, 4), "reading an answer"},
		"connect":     {NewConnect(to, 4, false), "after 0 bytes"},
		"bulk":        {NewBulk(to, 2), "receiving"},
	} {
		conductFor(t, c.load)
		if score := c.load.Score(); score.Failed == 0 || score.Done.Load() > 0 || !strings.Contains(score.Why, c.why) {
			t.Errorf("%s: %d done, %d failures: %q", name, score.Done.Load(), score.Failed, score.Why)
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
	l := NewEcho(unix.SOCK_DGRAM, to, 3)
	conductFor(t, l)
	if l.Failed != 3 || !strings.Contains(l.Why, "no answer") {
		t.Errorf("%d failures: %q; want one for each client", l.Failed, l.Why)
	}
}

// A measurement that was cancelled ends at once.
func TestLoadsEndWhenToldTo(t *testing.T) {
	at := startBackends(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(brief, cancel)
	started := time.Now()
	_, err := Conduct(ctx, nil, time.Hour, time.Hour, NewEcho(unix.SOCK_STREAM, BackendsAt(at.Echo), 4), NewBulk(BackendsAt(at.Bulk), 1))
	if err == nil || time.Since(started) > 5*time.Second {
		t.Errorf("ended after %v: %v", time.Since(started), err)
	}
}

func TestABurstIsCounted(t *testing.T) {
	at := startBackends(t)
	sent, answered, err := Burst{Clients: 20, Each: 10}.Fire(BackendsAt(at.UDP))
	if sent != 200 || answered != 200 || err != nil {
		t.Errorf("sent %d, answered %d, %v; want 200 of each", sent, answered, err)
	}
}

func TestThereAreAsManyConnectionsAsAskedFor(t *testing.T) {
	at := startBackends(t)
	for _, fin := range []bool{false, true} {
		l := NewConnect(BackendsAt(at.Echo), 8, fin)
		l.Most, l.First = 500, 100
		if err := Complete(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if done := l.Done.Load(); done != 500 || l.Failed > 0 || l.Latency.Count != 400 || l.Longest <= 0 {
			t.Errorf("%d connections, %d failed (%s), %d measured, the longest took %v; want 500, and 400 measured", done, l.Failed, l.Why, l.Latency.Count, l.Longest)
		}
	}
}

func TestUDPClientsComeAndGo(t *testing.T) {
	echo := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
	l := NewSessions([]netip.AddrPort{echo.Addr.IP})
	l.Most, l.Rate = 300, 3000
	if err := Complete(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if done := l.Done.Load(); done != 300 || l.Failed > 0 {
		t.Errorf("%d done, %d failed: %s", done, l.Failed, l.Why)
	}
	if got := echo.Received(); got < 450 { // more if a client had to ask again
		t.Errorf("%d datagrams; want one of half of the clients and two of the others", got)
	}
	if n := echo.Sessions(); n < 297 {
		t.Errorf("they came from %d addresses; want nearly as many as there were clients", n)
	}
}

func TestWhatFailsDoesSoAsItShould(t *testing.T) {
	base, err := measure.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	refuses, silent := netip.AddrPortFrom(BackendHost(0), base), netip.AddrPortFrom(BackendHost(1), base)
	if err := errors.Join(Refuse(refuses), FallSilent(silent)); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(unix.SOCK_STREAM, refuses); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%v: %v; want it to refuse", refuses, err)
	}
	for range 3 {
		if conn, err := net.DialTimeout("tcp", silent.String(), brief); err == nil || !err.(net.Error).Timeout() {
			t.Errorf("%v: %v, %v; want silence", silent, conn, err)
		}
	}
}

func TestAProbeTellsWhoAnswersAndWhen(t *testing.T) {
	at := startBackends(t)
	asks := &Probe{To: BackendsAt(at.Stamp)[2], Every: time.Millisecond, Heard: make(chan Stamp, 1)}
	began := measure.SinceBoot()
	ended := make(chan error, 1)
	go func() { ended <- asks.Run() }()
	s := <-asks.Heard
	if s.Endpoint != 3 || s.Asked < began || s.Asked > measure.SinceBoot() {
		t.Errorf("got %+v; want endpoint 3, asked between %v and now", s, began)
	}
	asks.Stop()
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
	var c Crowd
	for _, n := range []int{10, 30} {
		if err := c.Grow(t.Context(), []netip.AddrPort{echo.Addr.IP}, n); err != nil {
			t.Fatal(err)
		}
		if got := held.Load(); got != int32(n) {
			t.Errorf("%d connections are held; want %d", got, n)
		}
	}
	c.Disperse()
	proxytest.Eventually(t, func() bool { return held.Load() == 0 }, "the connections are still held")
}
