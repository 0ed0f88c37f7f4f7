//go:build linux

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"kubeproxy/scripts/internal/measure"
)

func TestItIsTheIntervalThatHasToReachABar(t *testing.T) {
	spread := func(low, median, high float64) measure.Spread {
		return measure.Spread{Low: low, Median: median, High: high, N: 15, Sure: true}
	}
	most := bar{bar: 1, aim: 0.8}
	least := bar{is: atLeast, bar: 0.95, aim: 1.05}
	two := bar{is: exactly, bar: 2, aim: 2}
	drops := bar{is: noMore, to: "nginx"}
	for _, c := range []struct {
		name  string
		bar   bar
		found measure.Spread
		want  verdict
		by    string
	}{
		{"aim", most, spread(0.7, 0.75, 0.8), aimReached, ""},
		{"between", most, spread(0.7, 0.79, 0.81), met, ""},
		{"on the bar", most, spread(0.9, 1, 1), met, ""},
		{"perhaps", most, spread(0.9, 0.99, 1.02), unsure, "2.0 %"},
		{"no", most, spread(0.99, 1.1, 1.2), missed, "10.0 %"},
		{"more is better: aim", least, spread(1.05, 1.1, 1.2), aimReached, ""},
		{"more is better: between", least, spread(0.95, 1, 1.2), met, ""},
		{"more is better: perhaps", least, spread(0.855, 1, 1.2), unsure, "10.0 %"},
		{"more is better: no", least, spread(0.7, 0.76, 1.2), missed, "20.0 %"},
		{"exactly", two, spread(2, 2, 2), met, ""},
		{"less is not exactly", two, spread(1.9, 1.9, 2), missed, "5.0 %"},
		{"no more", drops, spread(-7, 0, 0), met, ""},
		{"three more", drops, spread(0, 3, 4), missed, "3.00"},
		{"nothing", most, measure.SpreadOf(nil), unjudged, ""},
	} {
		if got, by := c.bar.judge(c.found); got != c.want || by != c.by {
			t.Errorf("%s: %s by %q; want %s by %q", c.name, got, by, c.want, c.by)
		}
	}
}

// judged has a row judged in which every round was alike.
func judged(bars []bar, figures map[string]float64, invalid ...string) rowReport {
	r := rowReport{Name: "x", metrics: []metric{{"rate", "ops/s", 1}, {"late", "late ms", 1e3}}, Samples: make(map[string][]sample), Invalid: invalid}
	var proxies []*proxy
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		proxies = append(proxies, &proxy{name: name, ours: strings.HasPrefix(name, "our"), cmd: []string{name}})
		for range 6 {
			r.Samples[name] = append(r.Samples[name], sample{Values: map[string]float64{"rate": figures[name]}, Pool: []float64{0.001, 0.004}})
		}
	}
	for _, p := range proxies {
		if p.name == "direct" {
			p.cmd = nil
		}
	}
	r.judge(bars, proxies)
	return r
}

func TestTheBestPeerIsTheOneThatIsHardestToBeat(t *testing.T) {
	r := judged([]bar{rateBesidePeers, p99BesidePeers}, map[string]float64{"direct": 900, "haproxy": 100, "nginx": 80, "ours": 96, "our other": 300})
	if len(r.Judged) != 2 { // of each of ours one: the row has no p99
		t.Fatalf("judged: %v", r.Judged)
	}
	for _, j := range r.Judged {
		want := map[string]verdict{"ours": met, "our other": aimReached}[j.Of]
		if j.To != "haproxy" || j.Verdict != want {
			t.Errorf("%v: beside %s; want %s beside haproxy", j, j.To, want)
		}
	}
}

func TestWhatCannotBeComparedIsNotJudged(t *testing.T) {
	nobody := judged([]bar{{key: "rate", to: "haproxy", bar: 1, aim: 1}}, map[string]float64{"direct": 900, "ours": 96})
	invalid := judged([]bar{{key: "rate", bar: 100, aim: 100}}, map[string]float64{"ours": 96}, "something failed")
	var text strings.Builder
	short := printJudgements(&text, []rowReport{nobody, invalid})
	if short != 2 || strings.Count(text.String(), "not judged: ") != 3 || !strings.Contains(text.String(), "the row is invalid") {
		t.Errorf("%d bars are not reached; want 2:\n%s", short, text.String())
	}
}

func TestAPoolIsJudgedByItsQuantile(t *testing.T) {
	r := judged([]bar{{key: "late", pool: true, bar: 5, aim: 5}}, map[string]float64{"ours": 1})
	if got := r.Judged[0].String(); got != "ours: late ms: ≤ 5.00: 4.00 {1.00, 4.00}: met" {
		t.Error(got)
	}
}

func TestMetricsAreAddedUp(t *testing.T) {
	all, err := parseMetrics(strings.NewReader("# HELP dropped Why.\ndropped{service=\"a b\",reason=\"queue_full\"} 5\ndropped{service=\"c\",reason=\"x\"} 2\ndropped_too 7\nseconds 1.5e-05\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := all.sum("dropped", ""); got != 7 {
		t.Errorf("dropped: %v; want 7", got)
	}
	if got := all.sum("dropped", `reason="queue_full"`); got != 5 {
		t.Errorf("dropped for one reason: %v; want 5", got)
	}
	if all["seconds"] != 1.5e-05 {
		t.Errorf("seconds: %v", all["seconds"])
	}
}
