//go:build linux

package measure

import (
	"strings"
	"testing"
)

func TestTheReportComparesWithinRounds(t *testing.T) {
	got := NewTable("x", "", []Metric{{"cpu", "CPU us/op", 1e6}}, Subject{Name: "peer", Peer: true}, Subject{Name: "a", Ours: true}, Subject{Name: "b", Ours: true})
	samples := got.Samples
	for round := range 6 {
		weather := float64(1 + round) // it gets slower for everybody
		for name, cpu := range map[string]float64{"peer": 10e-6, "a": 9e-6, "b": 18e-6} {
			samples[name] = append(samples[name], Sample{Values: map[string]float64{"cpu": cpu * weather}})
		}
	}
	got.Summarise()
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
	got.Summarise()
	var text strings.Builder
	got.Print(&text)
	if !strings.Contains(text.String(), "INVALID: a: 2 failed, the first: no answer") {
		t.Errorf("a failure is not told:\n%s", text.String())
	}
}
