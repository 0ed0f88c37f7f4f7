//go:build linux

package takeover

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/measure/measuretest"
)

func TestACommandLineThatIsNotUnderstoodIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-rounds=0"}, {"-times=0"}, {"-connections=0"}, {"-sessions=0"}, {"more"}, {"-nothing"}} {
		if _, err := parseOptions(args); !errors.As(err, new(measure.UsageError)) {
			t.Errorf("%q: %v; want a usage error", args, err)
		}
	}
}

func TestTheKindsOfConnectionsMakeUpTheWholeLoad(t *testing.T) {
	sum := 0
	for i := range kinds {
		sum += kinds[i].countOf(4000)
	}
	if sum != 4000 {
		t.Errorf("the kinds are %d connections; want 4000", sum)
	}
}

func TestEveryBarIsOfAFigureThatIsMeasured(t *testing.T) {
	keys := make(map[string]bool)
	for _, c := range columns {
		keys[c.Key] = true
	}
	for _, b := range bars {
		if !keys[b.Key] {
			t.Errorf("%+v: there is no such column", b)
		}
	}
}

func TestWhatMayNeverHappenIsMissedByOneRoundOfMany(t *testing.T) {
	measuretest.OneRoundOfMany(t, columns, bars)
}

func TestASessionThatFallsSilentIsNotHeld(t *testing.T) {
	const last = 6 // window, after two take-overs
	for name, c := range map[string]struct {
		answers map[int32]string // by window
		want    int64
	}{
		"answered to the end":             {map[int32]string{2: "0 host:1", 4: "0 host:1", 6: "0 host:1"}, 1},
		"silent since the last take-over": {map[int32]string{2: "0 host:1", 4: "0 host:1"}, 0},
		"answered once":                   {map[int32]string{2: "0 host:1"}, 0},
		"answered by another endpoint":    {map[int32]string{2: "0 host:1", 4: "1 host:1", 6: "1 host:1"}, 0},
		"answered by another for a while": {map[int32]string{2: "0 host:1", 4: "0 host:2", 6: "0 host:1"}, 0},
		"never answered":                  {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer endpoint.Close()
			conn, err := net.Dial("udp4", endpoint.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var l crowd
			l.work.Go(func() { l.listen(ctx, conn) })
			for window := int32(1); window <= last; window++ {
				l.window.Store(window)
				by, ok := c.answers[window]
				if !ok {
					continue
				}
				before := l.datagrams[1].Load()
				if _, err := endpoint.WriteTo(append(make([]byte, 8), by...), conn.LocalAddr()); err != nil {
					t.Fatal(err)
				}
				for l.datagrams[1].Load() == before {
					time.Sleep(time.Millisecond)
				}
			}
			cancel()
			l.work.Wait()
			if got := l.sessions.Load(); got != c.want {
				t.Errorf("%d sessions are held; want %d", got, c.want)
			}
		})
	}
}

func TestBytesOutOfPlaceAreSeen(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		said, want stream
		err        error
	}{
		{stream{start: 7919}, stream{start: 7919}, nil},
		{stream{start: 7919}, stream{start: 7920}, errWrongBytes},          // of another connection
		{stream{start: 7919, sent: 1}, stream{start: 7919}, errWrongBytes}, // one byte is lost
	} {
		out, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.said.write(t.Context(), out.(*net.TCPConn), finished); err != nil {
			t.Error(err)
		}
		if err := c.want.read(t.Context(), in.(*net.TCPConn), finished); !errors.Is(err, c.err) {
			t.Errorf("%+v read as %+v: %v; want %v", c.said, c.want, err, c.err)
		}
		out.Close()
		in.Close()
	}
}

func TestFaultsAreSortedByWhatTheyMeanToAClient(t *testing.T) {
	var f faults
	c := &connection{kind: &kinds[0]}
	for range 2 { // both ends of one connection notice
		f.noteHeld(c, "client", &net.OpError{Op: "read", Err: syscall.ECONNRESET})
	}
	f.note("newcomer", syscall.ECONNREFUSED)
	f.note("newcomer", io.ErrUnexpectedEOF)
	f.note("newcomer", os.ErrDeadlineExceeded)
	f.note("newcomer", nil)
	if diff := cmp.Diff(map[string]int{"reset": 1, "refused": 1, "missing": 1, "late": 1}, f.count); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestACounterThatGoesBackOrIsGoneIsSeen(t *testing.T) {
	if n := decreased(map[string]float64{"a": 1, "b": 2, "c": 3}, map[string]float64{"a": 1, "b": 1, "d": 0}); n != 2 {
		t.Errorf("%d; want 2", n)
	}
}

// A few connections, real etcd and kube-proxy, two take-overs. Whether the pause is short is not what is tested here.
func TestAWholeRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	o, run, err := Parse([]string{"-binary=" + measuretest.KubeProxy(t), "-times=2", "-connections=40", "-sessions=10", "-haproxy=false", "-json=" + file})
	if err != nil {
		t.Fatal(err)
	}
	if err := measure.Run(t.Context(), o, run); err != nil && !errors.Is(err, measure.ErrBars) {
		t.Fatal(err)
	}
	got := measuretest.ReadReport(t, file)
	if invalid := got.Tables[0].Invalid; len(invalid) > 0 {
		t.Fatal(invalid)
	}
	values := got.Tables[0].Samples[ours][0].Values
	for _, c := range columns {
		if _, ok := values[c.Key]; !ok {
			t.Errorf("%s: no value", c.Key)
		}
	}
	for _, key := range []string{"refused", "reset", "wrong", "missing", "elsewhere", "backwards"} {
		if values[key] != 0 {
			t.Errorf("%s: %v", key, values[key])
		}
	}
	if values["takeovers"] != 2 || values["sessions"] != 10 || values["held"] < 40 {
		t.Errorf("%v take-overs, %v sessions, %v connections", values["takeovers"], values["sessions"], values["held"])
	}
}
