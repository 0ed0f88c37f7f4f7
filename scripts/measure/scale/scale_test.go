//go:build linux

package scale

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/measure/measuretest"
)

// TestMain is also the program itself, for what it starts.
func TestMain(m *testing.M) {
	measure.Play(Roles)
	os.Exit(m.Run())
}

func TestACommandLineThatIsNotUnderstoodIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-rounds=0"}, {"-changes=9"}, {"-churn=1"}, {"-quick", "-changes=50"}, {"-only=nothing"}, {"-sizes=11"}, {"more"}, {"-nothing"}} {
		if _, err := parseOptions(args); !errors.As(err, new(measure.UsageError)) {
			t.Errorf("%q: %v; want a usage error", args, err)
		}
	}
}

func TestEveryBarIsOfAFigureThatIsMeasured(t *testing.T) {
	keys := make(map[string]bool)
	for _, l := range lines {
		keys[l.Key] = true
	}
	of := make(map[string]int)
	for _, b := range bars(many) {
		of[b.Of]++
		if !keys[b.Key] || b.ToKey != "" && !keys[b.ToKey] {
			t.Errorf("%+v: there is no such line", b)
		}
	}
	if of[few] != 2 || of["1000"] != 2 || of[many] != 15 {
		t.Errorf("bars by size: %v; want 2 of 10 and of 1000, and 15 of 10000", of)
	}
	if i := churned(allSizes); allSizes[i].name != many {
		t.Errorf("the churn is at %s; want %s", allSizes[i].name, many)
	}
}

// The endpoints of a service in its two states have nothing in common, else one connection could not tell
// them apart.
func TestAChangeReplacesEveryEndpoint(t *testing.T) {
	for _, size := range allSizes {
		s := &stock{size: size, greets: 7000, states: make([]state, size.services)}
		i := s.next()
		if i < size.untouched() {
			t.Fatalf("service %d of %s is changed; it should not be touched", i, size.name)
		}
		records := make([]map[string]bool, 2)
		for by := range 2 {
			s.states[i].by = by
			var record struct{ Endpoints []string }
			if err := json.Unmarshal(s.endpoints(unwatched, i).ValueBytes(), &record); err != nil {
				t.Fatal(err)
			}
			records[by] = make(map[string]bool)
			for _, e := range record.Endpoints {
				records[by][e] = true
			}
			if len(records[by]) != size.endpoints {
				t.Errorf("%s: %d endpoints; want %d", size.name, len(records[by]), size.endpoints)
			}
		}
		for e := range records[0] {
			if records[1][e] {
				t.Errorf("%s: %s stays", size.name, e)
			}
		}
	}
}

func TestAGreeterSaysWhoItIsAndWhenTheClientCame(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go greet(conn, greeting{1, 42})
		}
	}()
	to := l.Addr().(*net.TCPAddr).AddrPort()
	if g, err := ask(to); err != nil || g != (greeting{1, 42}) {
		t.Errorf("got %+v, %v; want greeter 1 at 42", g, err)
	}
	if at, err := knock(to, 1); err != nil || at <= 0 {
		t.Errorf("knock: %v, %v", at, err)
	}
	if _, err := knock(to, 0); err == nil {
		t.Error("another greeter answers than was wanted, and nobody minds")
	}
}

func TestListeningCountsTheServicesOfOneAddress(t *testing.T) {
	host := netip.MustParseAddr("127.0.9.9")
	before, err := listening(host)
	if err != nil || before != 0 {
		t.Fatalf("before anybody listens: %d, %v", before, err)
	}
	for _, at := range []string{"127.0.9.9:10999", "127.0.9.9:18123", "127.0.9.9:18124", "127.0.9.8:18123"} {
		l, err := net.Listen("tcp4", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	if n, err := listening(host); err != nil || n != 2 {
		t.Errorf("%d, %v; want the two ports of services", n, err)
	}
}

// Everything once, with few services: real backends, etcd and kube-proxy. Whether the bars are met is not what is
// tested here.
func TestAWholeRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	o, run, err := Parse([]string{"-binary=" + measuretest.KubeProxy(t), "-sizes=10", "-rounds=1", "-changes=20", "-churn=2", "-json=" + file})
	if err != nil {
		t.Fatal(err)
	}
	if err := measure.Run(t.Context(), o, run); err != nil && !errors.Is(err, measure.ErrBars) {
		t.Fatal(err)
	}
	got := measuretest.ReadReport(t, file)
	samples := got.Tables[0].Samples["10"]
	if len(samples) != 1 {
		t.Fatalf("%d samples; want one", len(samples))
	}
	for _, l := range lines {
		if _, ok := samples[0].Values[l.Key]; !ok {
			t.Errorf("%s: no value", l.Key)
		}
	}
	if failed := samples[0].Values["failed"]; failed != 0 || len(got.Tables[0].Invalid) > 0 {
		t.Errorf("failed: %v (%v)", failed, got.Tables[0].Invalid)
	}
}
