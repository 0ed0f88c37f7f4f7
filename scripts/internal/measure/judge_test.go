//go:build linux

package measure

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestItIsTheIntervalThatHasToReachABar(t *testing.T) {
	spread := func(low, median, high float64) Spread {
		return Spread{Low: low, Median: median, High: high, N: 15, Sure: true}
	}
	most := Bar{Bar: 1, Aim: 0.8}
	least := Bar{Is: AtLeast, Bar: 0.95, Aim: 1.05}
	two := Bar{Is: Exactly, Bar: 2, Aim: 2}
	drops := Bar{Is: NoMore, To: "nginx"}
	for _, c := range []struct {
		name  string
		bar   Bar
		found Spread
		want  Verdict
		by    string
	}{
		{"aim", most, spread(0.7, 0.75, 0.8), AimReached, ""},
		{"between", most, spread(0.7, 0.79, 0.81), Met, ""},
		{"on the bar", most, spread(0.9, 1, 1), Met, ""},
		{"perhaps", most, spread(0.9, 0.99, 1.02), Unsure, "2.0 %"},
		{"no", most, spread(0.99, 1.1, 1.2), Missed, "10.0 %"},
		{"more is better: aim", least, spread(1.05, 1.1, 1.2), AimReached, ""},
		{"more is better: between", least, spread(0.95, 1, 1.2), Met, ""},
		{"more is better: perhaps", least, spread(0.855, 1, 1.2), Unsure, "10.0 %"},
		{"more is better: no", least, spread(0.7, 0.76, 1.2), Missed, "20.0 %"},
		{"exactly", two, spread(2, 2, 2), Met, ""},
		{"less is not exactly", two, spread(1.9, 1.9, 2), Missed, "5.0 %"},
		{"no more", drops, spread(-7, 0, 0), Met, ""},
		{"three more", drops, spread(0, 3, 4), Missed, "3.00"},
		{"nothing", most, SpreadOf(nil), Unjudged, ""},
	} {
		if got, by := c.bar.judge(c.found); got != c.want || by != c.by {
			t.Errorf("%s: %s by %q; want %s by %q", c.name, got, by, c.want, c.by)
		}
	}
}

// judged has a row judged in which every round was alike.
func judged(bars []Bar, figures map[string]float64, invalid ...string) *Table {
	t := NewTable("x", "", []Metric{{"rate", "ops/s", 1}, {"late", "late ms", 1e3}})
	t.Invalid = invalid
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		ours := strings.HasPrefix(name, "our") || name == "old" || name == "new"
		t.Subjects = append(t.Subjects, Subject{Name: name, Ours: ours, Peer: !ours && name != "direct"})
		for range 6 {
			t.Samples[name] = append(t.Samples[name], Sample{Values: map[string]float64{"rate": figures[name]}, Pool: []float64{0.001, 0.004}})
		}
	}
	t.Judge(bars)
	return t
}

func TestTheBestPeerIsTheOneThatIsHardestToBeat(t *testing.T) {
	r := judged([]Bar{{Key: "rate", To: BestPeer, Is: AtLeast, Bar: 0.95, Aim: 1.05}, {Key: "p99", To: BestPeer, Bar: 1.1}}, map[string]float64{"direct": 900, "haproxy": 100, "nginx": 80, "ours": 96, "our other": 300})
	if len(r.Judged) != 2 { // of each of ours one: the row has no p99
		t.Fatalf("judged: %v", r.Judged)
	}
	for _, j := range r.Judged {
		want := map[string]Verdict{"ours": Met, "our other": AimReached}[j.Of]
		if j.To != "haproxy" || j.Verdict != want {
			t.Errorf("%v: beside %s; want %s beside haproxy", j, j.To, want)
		}
	}
}

func TestANewBuildIsHeldToTheOldOne(t *testing.T) {
	for figure, want := range map[float64]Verdict{97: Met, 100: Met, 90: Missed} {
		r := judged([]Bar{{Key: "rate", To: "old", Is: AtLeast, Bar: 0.97}}, map[string]float64{"old": 100, "new": figure})
		if len(r.Judged) != 1 || r.Judged[0].Of != "new" || r.Judged[0].Verdict != want {
			t.Errorf("%v beside 100: %v; want one judgement, of the new build: %s", figure, r.Judged, want)
		}
	}
}

func TestAFigureIsComparedWithAnotherOfItsRound(t *testing.T) {
	table := NewTable("x", "", []Metric{{"busy", "busy ms", 1e3}}, Subject{Name: "10", Ours: true}, Subject{Name: "20", Ours: true})
	for i, busy := range []float64{0.0012, 0.010, 0.0011} {
		values := map[string]float64{"busy": busy, "calm": []float64{0.001, 0.010, 0.001}[i], "failed": []float64{0, 1, 0}[i]}
		table.Samples["10"] = append(table.Samples["10"], Sample{Values: values})
		table.Samples["20"] = append(table.Samples["20"], Sample{Values: map[string]float64{"busy": 2 * busy}})
	}
	table.Metrics = append(table.Metrics, Metric{"failed", "failed", 1})
	table.Judge([]Bar{
		{Key: "busy", Of: "10", ToKey: "calm", Bar: 1.1},
		{Key: "busy", Of: "20", To: "10", Bar: 1.5},
		{Key: "failed", Of: "10", Worst: true}, // of which a median would say nothing
	})
	want := []Verdict{Unsure, Missed, Missed}
	for i, j := range table.Judged {
		if j.Verdict != want[i] {
			t.Errorf("%v; want %s", j, want[i])
		}
	}
	if len(table.Judged) != len(want) {
		t.Errorf("%d judgements; want %d", len(table.Judged), len(want))
	}
}

func TestTheWorstRoundIsTheOneFarthestBeyondTheBar(t *testing.T) {
	for _, c := range []struct {
		is    Relation
		bar   float64
		worst float64
		want  Verdict
	}{{AtMost, 8, 9, Missed}, {AtMost, 9, 9, Met}, {AtLeast, 3, 2, Missed}, {AtLeast, 2, 2, Met}, {Exactly, 5, 9, Missed}} {
		table := NewTable("row", "", []Metric{Column("rate", "a second", 1)}, Subject{Name: "ours", Ours: true})
		for _, rate := range []float64{9, 2, 5} {
			table.Samples["ours"] = append(table.Samples["ours"], Sample{Values: map[string]float64{"rate": rate}})
		}
		table.Judge([]Bar{{Key: "rate", Is: c.is, Bar: c.bar, Worst: true}})
		if j := table.Judged[0]; j.Found.Median != c.worst || j.Verdict != c.want {
			t.Errorf("%v; want %v, %s", j, c.worst, c.want)
		}
	}
}

func TestWhatCannotBeComparedIsNotJudged(t *testing.T) {
	nobody := judged([]Bar{{Key: "rate", To: "haproxy", Bar: 1}}, map[string]float64{"direct": 900, "ours": 96})
	invalid := judged([]Bar{{Key: "rate", Bar: 100}}, map[string]float64{"ours": 96}, "something failed")
	var text strings.Builder
	short := (&Report{Tables: []*Table{nobody, invalid}}).Judgements(&text, func(v Verdict) bool { return !v.Reached() })
	if short != 2 || strings.Count(text.String(), "not judged: ") != 3 || !strings.Contains(text.String(), "the row is invalid") {
		t.Errorf("%d bars are not reached; want 2:\n%s", short, text.String())
	}
}

func TestAPoolIsJudgedByItsQuantile(t *testing.T) {
	r := judged([]Bar{{Key: "late", Pool: true, Bar: 5}}, map[string]float64{"ours": 1})
	if got := r.Judged[0].String(); got != "ours: late ms: ≤ 5.00: 4.00 {1.00, 4.00}: met" {
		t.Error(got)
	}
}
