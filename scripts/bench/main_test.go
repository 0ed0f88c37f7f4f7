//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
)

// TestMain is also what the tests start: the program itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "backends" || os.Args[1] == "watcher") {
		main()
	}
	os.Exit(m.Run())
}

func TestVariants(t *testing.T) {
	for _, c := range []struct {
		text string
		want []variant // nil: not understood
	}{
		{"kube-proxy=", []variant{{name: "kube-proxy"}}},
		{"a; b=", []variant{{name: "a"}, {name: "b"}}},
		{"off=-metrics_bind_address= ;on=-connection_log=/dev/null -v=2", []variant{
			{name: "off", flags: []string{"-metrics_bind_address="}},
			{name: "on", flags: []string{"-connection_log=/dev/null", "-v=2"}}}},
		{"old=/tmp/kube-proxy -v=1;new=", []variant{{name: "old", binary: "/tmp/kube-proxy", flags: []string{"-v=1"}}, {name: "new"}}},
		{"", nil},
		{"a=;a=", nil},
		{"nginx=", nil},
		{"-v=2", nil},
	} {
		got, err := parseVariants(c.text)
		if (err != nil) != (c.want == nil) {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		for i := range got {
			if len(got[i].flags) == 0 {
				got[i].flags = nil
			}
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(variant{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}

func TestEveryRowThatIsNamedExists(t *testing.T) {
	for _, name := range slices.Concat(defaultRows, moreRows, []string{"udp-7", "bulk-32"}) {
		r, err := rowNamed(name)
		if err != nil || r.name != name || r.title == "" || len(r.metrics) == 0 || r.measure == nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	for _, name := range []string{"", "bulk", "bulk-0", "udp--1", "roundtrip-99999", "Idle"} {
		if _, err := rowNamed(name); err == nil {
			t.Errorf("there is a row %q", name)
		}
	}
}

func TestACommandLineThatIsNotUnderstoodIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-rounds=0"}, {"-only=nothing"}, {"-all", "-only=idle"}, {"-peers=envoy"}, {"-self="}, {"more"}, {"-nothing"}} {
		if _, err := parseOptions(args); !errors.As(err, new(usageError)) {
			t.Errorf("%q: %v; want a usage error", args, err)
		}
	}
}

func TestTheReportComparesWithinRounds(t *testing.T) {
	r := row{name: "x", metrics: []metric{{"cpu", "CPU us/op", 1e6}}}
	proxies := []*proxy{{name: "peer"}, {name: "a", ours: true}, {name: "b", ours: true}}
	samples := make(map[string][]sample)
	for round := range 6 {
		weather := float64(1 + round) // it gets slower for everybody
		for name, cpu := range map[string]float64{"peer": 10e-6, "a": 9e-6, "b": 18e-6} {
			samples[name] = append(samples[name], sample{Values: map[string]float64{"cpu": cpu * weather}})
		}
	}
	got := summarise(r, proxies, samples)
	type pair struct{ of, to string }
	want := map[pair]float64{{"a", "peer"}: 0.9, {"b", "peer"}: 1.8, {"b", "a"}: 2}
	if len(got.Ratios) != len(want) {
		t.Errorf("%d ratios; want %d", len(got.Ratios), len(want))
	}
	for _, ratio := range got.Ratios {
		s, ok := ratio.Paired["cpu"]
		if w := want[pair{ratio.Of, ratio.To}]; !ok || !s.Sure || s.Low < w-1e-9 || s.High > w+1e-9 {
			t.Errorf("%s / %s is %+v; want %v in every round", ratio.Of, ratio.To, s, w)
		}
	}
	if m := got.Medians["peer"]["cpu"].Median; m < 34.999 || m > 35.001 {
		t.Errorf("the peer's median is %v us; want 35", m)
	}
	if len(got.Invalid) > 0 {
		t.Errorf("invalid: %q", got.Invalid)
	}

	samples["a"][3].Failed, samples["a"][3].Why = 2, "no answer"
	got = summarise(r, proxies, samples)
	var text strings.Builder
	got.print(&text)
	if !strings.Contains(text.String(), "INVALID: a: 2 failed, the first: no answer") {
		t.Errorf("a failure is not told:\n%s", text.String())
	}
}

func TestARowInWhichNothingWasDoneHasFailed(t *testing.T) {
	s := operations(load.Window{Done: []float64{0}, Elapsed: time.Second}, new(load.Tally))
	if s.Failed == 0 || s.Why == "" {
		t.Errorf("the sample is %+v", s)
	}
}

// buildKubeProxy builds the program that is measured.
func buildKubeProxy(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kube-proxy")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, "kubeproxy/cmd/kube-proxy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// Everything once, for a moment: real backends, etcd and kube-proxy, and those of the peers that are
// installed.
func TestAWholeRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	rows := "roundtrip-2,connect-reset,connect-fin,bulk-1,udp-2,mixed,burst,effect,failing"
	err := run(t.Context(), []string{"-binary=" + buildKubeProxy(t), "-only=" + rows, "-rounds=1", "-time=250ms", "-warm=50ms", "-fewer=100", "-self=a=;b=-v=1", "-json=" + file})
	if err != nil {
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
	if len(got.Rows) != strings.Count(rows, ",")+1 {
		t.Errorf("%d rows are reported; want %s", len(got.Rows), rows)
	}
	for _, r := range got.Rows {
		key := "rate"
		switch r.Name {
		case "burst":
			key = "answered"
		case "failing":
			key = "healthy"
		}
		for _, name := range []string{"a", "b"} {
			if figure := r.Medians[name][key].Median; figure <= 0 {
				t.Errorf("%s: %s has done nothing", r.Name, name)
			}
			if !slices.ContainsFunc(r.Judged, func(j judgement) bool { return j.Of == name }) {
				t.Errorf("%s: %s is not judged", r.Name, name)
			}
		}
		if !slices.ContainsFunc(r.Ratios, func(ratio ratioReport) bool { return ratio.Of == "b" && ratio.To == "a" && ratio.Paired[key].N == 1 }) {
			t.Errorf("%s: b is not compared with a", r.Name)
		}
	}
}

// Two hundred sessions and two thousand connections, and as many again.
func TestWhatClientsLeaveBehindIsMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	args := []string{"-binary=" + buildKubeProxy(t), "-peers=none", "-only=churn-udp,churn-tcp", "-fewer=500", "-json=" + file}
	if err := run(t.Context(), args); err != nil {
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
	for _, row := range got.Rows {
		found := row.Medians["kube-proxy"]
		if m := found["second"].Median; m < 1 || m > 200 {
			t.Errorf("%s: it is said to have %v MB of memory", row.Name, m)
		}
		if d, g := found["descriptors"].Median, found["goroutines"].Median; d > 0 || g > 0 {
			t.Errorf("%s: %v descriptors and %v goroutines are left behind", row.Name, d, g)
		}
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	before, err := measure.Family(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(3*time.Second, cancel) // most likely amid a row
	err = run(ctx, []string{"-binary=" + buildKubeProxy(t), "-only=roundtrip-2", "-rounds=1000"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v; want it to say that it was told to stop", err)
	}
	after, err := measure.Family(os.Getpid())
	if err != nil || len(after) > len(before) {
		t.Errorf("before: %v; afterwards: %v (%v)", before, after, err)
	}
}
