//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMain is also the program itself, for what it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"backends", "greeters", "naive", "reader", "watcher"}, os.Args[1]) {
		main()
	}
	os.Exit(m.Run())
}

func TestACommandLineThatIsNotUnderstoodIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-rounds=0"}, {"-changes=9"}, {"-churn=1"}, {"-quick", "-changes=50"}, {"-only=nothing"}, {"-sizes=11"}, {"more"}, {"-nothing"}} {
		if _, err := parseOptions(args); !errors.As(err, new(usageError)) {
			t.Errorf("%q: %v; want a usage error", args, err)
		}
	}
}

func TestEveryBarIsJudgedByTheMedian(t *testing.T) {
	r := newReport(options{sizes: allSizes}, 0)
	for _, cpu := range []float64{80e-6, 90e-6, 900e-6} { // one wild round
		r.note(allSizes[0], "endpointsnet", cpu)
		r.note(allSizes[2], "endpointsnet", 2*cpu)
	}
	r.note(allSizes[2], "resync", 0.060)
	for i, failed := range []float64{0, 1, 0} { // of which a median would say nothing
		r.note(allSizes[2], "failed", failed)
		r.note(allSizes[2], "trips99", []float64{0.0012, 0.010, 0.0011}[i]) // beside 0.001, 0.010 and 0.001
		r.note(allSizes[2], "trips99calm", []float64{0.001, 0.010, 0.001}[i])
		r.note(allSizes[2], "anonymousafterchurn", []float64{50, 60, 61}[i])
		r.note(allSizes[2], "anonymousbeforechurn", 50)
	}
	r.judge()
	got := make(map[string]bool)
	for _, b := range r.Bars {
		got[b.What] = b.Met
	}
	for what, met := range map[string]bool{
		"CPU of a change of endpoints, 10 services":                            true,
		"CPU of a change of endpoints, 10000 services":                         false,
		"CPU of a change of endpoints, 10000 services to 10":                   false,
		"CPU of an unchanged resync, 10000 services":                           true,
		"churn: clients of untouched services that failed, in the worst round": false,
		"churn: p99 of round trips, to puts that nobody watches":               true,
		"churn: RssAnon afterwards, to before":                                 false,
	} {
		if is, ok := got[what]; !ok || is != met {
			t.Errorf("%s: judged %v, met %v; want %v", what, ok, is, met)
		}
	}
	if len(got) != 7 || r.missed() != 4 {
		t.Errorf("%d bars, %d missed: %v; want 7, of which 4 are missed", len(got), r.missed(), got)
	}
	var text strings.Builder
	r.print(&text)
	if strings.Count(text.String(), "MISSED") != 4 {
		t.Errorf("what is missed is not told:\n%s", text.String())
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
	binary, file := filepath.Join(t.TempDir(), "kube-proxy"), filepath.Join(t.TempDir(), "report.json")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "kubeproxy/cmd/kube-proxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err := run(t.Context(), []string{"-binary=" + binary, "-sizes=10", "-rounds=1", "-changes=20", "-churn=2", "-json=" + file})
	if err != nil && !errors.Is(err, errMissed) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		values := got.Samples["10"][l.key]
		if len(values) != 1 {
			t.Errorf("%s: %v; want one value", l.key, values)
		}
	}
	if failed := got.Samples["10"]["failed"]; !slices.Equal(failed, []float64{0}) {
		t.Errorf("failed: %v (%s)", failed, got.Why)
	}
}
