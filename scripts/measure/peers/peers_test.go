//go:build linux

package peers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/measure/measuretest"
)

// TestMain is also what the tests start: the program itself.
func TestMain(m *testing.M) {
	measure.Play(Roles)
	os.Exit(m.Run())
}

// run measures as the program does.
func run(ctx context.Context, args ...string) error {
	o, do, err := Parse(args)
	if err != nil {
		return err
	}
	return measure.Run(ctx, o, do)
}

func TestAKubeProxyOfThisTreeHasTheFlagsThatItIsGiven(t *testing.T) {
	has, err := flagsOf(measuretest.KubeProxy(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range operatorFlags {
		if name, _, _ := strings.Cut(flag, "="); !has[name] {
			t.Errorf("%s is left out", flag)
		}
	}
}

func TestWhatMayNeverHappenIsMissedByOneRoundOfMany(t *testing.T) {
	for _, r := range plainRows() {
		measuretest.OneRoundOfMany(t, r.metrics, r.bars)
	}
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
	for _, args := range [][]string{{"-rounds=0"}, {"-only=nothing"}, {"-all", "-only=idle"}, {"-peers=envoy"}, {"-self="}, {"-clients=heavy"}, {"-clients=goroutines", "-only=idle"}, {"-clients=none"}, {"-old=a", "-self=b="}, {"-old=a", "-peers=nginx"}, {"-viewers=-1"}, {"-viewers=4", "-old=a"}, {"more"}, {"-nothing"}} {
		if _, err := parseOptions("peers", args); !errors.As(err, new(measure.UsageError)) {
			t.Errorf("%q: %v; want a usage error", args, err)
		}
	}
}

func TestARowInWhichNothingWasDoneHasFailed(t *testing.T) {
	s := operations(load.Window{Done: []float64{0}, Elapsed: time.Second}, new(load.Counters))
	if s.Failed == 0 || s.Why == "" {
		t.Errorf("the sample is %+v", s)
	}
}

// Everything once, for a moment: real backends, etcd and kube-proxy, and those of the peers that are
// installed.
func TestAWholeRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	rows := "roundtrip-2,connect-reset,connect-fin,bulk-1,udp-2,mixed,burst,effect,failing"
	err := run(t.Context(), "-binary="+measuretest.KubeProxy(t), "-only="+rows, "-clients=light,goroutines", "-rounds=1", "-time=250ms", "-warm=50ms", "-fewer=100", "-self=a=;b=-v=1", "-json="+file)
	if err != nil {
		t.Fatal(err)
	}
	got := measuretest.ReadReport(t, file)
	if byGoroutines := 4; len(got.Tables) != strings.Count(rows, ",")+1+byGoroutines {
		t.Errorf("%d rows are reported; want %s, and four with goroutines", len(got.Tables), rows)
	}
	for _, r := range got.Tables {
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
			if !slices.ContainsFunc(r.Judged, func(j measure.Judgement) bool { return j.Of == name }) {
				t.Errorf("%s: %s is not judged", r.Name, name)
			}
		}
		if !slices.ContainsFunc(r.Ratios, func(ratio measure.RatioReport) bool {
			return ratio.Of == "b" && ratio.To == "a" && ratio.Paired[key].N == 1
		}) {
			t.Errorf("%s: b is not compared with a", r.Name)
		}
	}
}

// The second kube-proxy has viewers in each round, and is held against the first.
func TestViewersOfTheStatusPageAreMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	err := run(t.Context(), "-binary="+measuretest.KubeProxy(t), "-viewers=4", "-only=roundtrip-2", "-rounds=2", "-time=250ms", "-warm=50ms", "-json="+file)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range measuretest.ReadReport(t, file).Tables {
		if a, v := row.Medians["alone"]["rate"].Median, row.Medians["viewed"]["rate"].Median; a <= 0 || v <= 0 {
			t.Errorf("%s: %v operations a second without viewers, %v with them", row.Name, a, v)
		}
		if !slices.ContainsFunc(row.Judged, func(j measure.Judgement) bool { return j.Of == "viewed" && j.To == "alone" && j.Bar == 1.03 }) {
			t.Errorf("%s: %+v; want the one with viewers held against the one without", row.Name, row.Judged)
		}
	}
}

// Viewers have come when each has been sent something, and stay until they leave.
func TestViewersComeAndLeave(t *testing.T) {
	var here atomic.Int32
	var full atomic.Bool
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if full.Load() {
			http.Error(w, "too many", http.StatusServiceUnavailable)
			return
		}
		here.Add(1)
		defer here.Add(-1)
		_, _ = io.WriteString(w, "data: {}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer page.Close()
	var v viewers
	if err := v.come(4, page.URL); err != nil || here.Load() != 4 {
		t.Errorf("%d viewers have come: %v; want 4", here.Load(), err)
	}
	v.leave()
	for deadline := time.Now().Add(30 * time.Second); here.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d viewers are left", here.Load())
		}
	}
	full.Store(true)
	if err := v.come(1, page.URL); err == nil {
		t.Error("a viewer who is turned away has come")
	}
	v.leave()
}

// Two hundred sessions and two thousand connections, and as many again.
func TestWhatClientsLeaveBehindIsMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	err := run(t.Context(), "-binary="+measuretest.KubeProxy(t), "-peers=none", "-only=churn-udp,churn-tcp", "-fewer=500", "-json="+file)
	if err != nil {
		t.Fatal(err)
	}
	got := measuretest.ReadReport(t, file)
	for _, row := range got.Tables {
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
	err = run(ctx, "-binary="+measuretest.KubeProxy(t), "-only=roundtrip-2", "-rounds=1000")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v; want it to say that it was told to stop", err)
	}
	after, err := measure.Family(os.Getpid())
	if err != nil || len(after) > len(before) {
		t.Errorf("before: %v; afterwards: %v (%v)", before, after, err)
	}
}
