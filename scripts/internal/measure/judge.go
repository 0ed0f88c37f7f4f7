//go:build linux

package measure

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Bar says what a figure of ours has to be for us to be content with a row, and what we aim at beyond
// that. It is the interval that has to lie within, and not only the median: what may be luck does
// not count.
type Bar struct {
	Key   string // of the metric
	What  string // names the figure; empty: the title of the metric
	Of    string // the only subject that has this bar; empty: each of ours
	To    string // the subject that the figure is compared with; empty: nothing
	ToKey string // the metric of the same subject that the figure is compared with; empty: nothing
	Is    Relation
	Bar   float64 // as a ratio or, compared with nothing, in the unit of the metric's column
	Aim   float64 // the same; zero or the bar itself if we aim at no more
	Pool  bool    // the figure is the 99th of a hundred of the row's single figures, all rounds together
	Worst bool    // the figure is that of the worst round, of which a median would say nothing
}

// BestPeer is whichever peer does best, by the figure of a bar.
const BestPeer = "the best peer"

// A Relation is how a figure has to lie to its bar.
type Relation int

// The relations.
const (
	AtMost Relation = iota
	AtLeast
	Exactly
	NoMore // the difference to the other's figure, which may be zero
)

func (r Relation) String() string { return [...]string{"≤", "≥", "=", "−"}[r] }

// A Judgement is what came of one bar, for one of ours.
type Judgement struct {
	Row     string  `json:"row"`
	Of      string  `json:"of"`
	Title   string  `json:"title"` // of the figure
	To      string  `json:"to,omitempty"`
	Is      string  `json:"is"`
	Bar     float64 `json:"bar"`
	Aim     float64 `json:"aim"`
	Found   Spread  `json:"found"`
	Verdict Verdict `json:"verdict"`
	By      string  `json:"by,omitempty"` // how far the median misses the bar or, unsure, the interval
}

// A Verdict is the short of it.
type Verdict string

// The verdicts.
const (
	AimReached Verdict = "aim reached"
	Met        Verdict = "met"
	Unsure     Verdict = "unsure" // the median is within, the interval is not
	Missed     Verdict = "missed"
	Unjudged   Verdict = "not judged" // there is nothing to compare with
)

// Reached reports whether the bar is reached.
func (v Verdict) Reached() bool { return v == AimReached || v == Met }

// beyond is how far a value lies beyond a mark; not at all, if that is negative.
func (b Bar) beyond(value, mark float64) float64 {
	switch b.Is {
	case AtLeast:
		return mark - value
	case Exactly:
		return math.Abs(value - mark)
	}
	return value - mark
}

// judge says what a spread is worth, given the bar.
func (b Bar) judge(s Spread) (Verdict, string) {
	worst := func(mark float64) float64 { return max(b.beyond(s.Low, mark), b.beyond(s.High, mark)) }
	by := func(distance float64) string {
		if b.Bar == 0 || b.Is == NoMore {
			return Figure(distance)
		}
		return fmt.Sprintf("%.1f %%", 100*distance/b.Bar)
	}
	switch {
	case s.N == 0:
		return Unjudged, ""
	case b.Aim != 0 && b.Aim != b.Bar && worst(b.Aim) <= 0:
		return AimReached, ""
	case worst(b.Bar) <= 0:
		return Met, ""
	case b.beyond(s.Median, b.Bar) <= 0:
		return Unsure, by(worst(b.Bar))
	}
	return Missed, by(b.beyond(s.Median, b.Bar))
}

// Judge holds each of ours to the bars of the figures that it has.
func (t *Table) Judge(bars []Bar) {
	for _, s := range t.Subjects {
		for _, b := range bars {
			i := slices.IndexFunc(t.Metrics, func(m Metric) bool { return m.Key == b.Key })
			if s.Ours && i >= 0 && s.Name != b.To && (b.Of == "" || b.Of == s.Name) && (b.Pool || len(known(t.values(s.Name, b.Key, 1))) > 0) {
				t.Judged = append(t.Judged, t.judgeOne(b, s.Name, t.Metrics[i]))
			}
		}
	}
}

func (t *Table) judgeOne(b Bar, subject string, m Metric) Judgement {
	j := Judgement{Row: t.Name, Of: subject, Title: cmp.Or(b.What, m.Title), To: cmp.Or(b.To, b.ToKey), Is: b.Is.String(), Bar: b.Bar, Aim: cmp.Or(b.Aim, b.Bar), Verdict: Unjudged}
	hold := func(found Spread, to string) {
		v, by := b.judge(found)
		// The best peer is the one beside which we look worst.
		if v != Unjudged && (j.Found.N == 0 || b.Is == AtLeast && found.Median < j.Found.Median || b.Is != AtLeast && found.Median > j.Found.Median) {
			j.Found, j.To, j.Verdict, j.By = found, to, v, by
		}
	}
	ours := t.values(subject, b.Key, m.Scale)
	switch {
	case b.Pool:
		var pooled []float64
		for _, s := range t.Samples[subject] {
			for _, v := range s.Pool {
				pooled = append(pooled, v*m.Scale)
			}
		}
		hold(QuantileOf(pooled, 0.99), b.To)
	case b.ToKey != "":
		hold(SpreadOf(PairedRatios(ours, t.values(subject, b.ToKey, m.Scale))), b.ToKey)
	case b.To != "":
		t.holdToOthers(b, ours, m.Scale, hold)
	case b.Worst:
		if all := known(ours); len(all) > 0 {
			worst := slices.MaxFunc(all, func(x, y float64) int { return cmp.Compare(b.beyond(x, b.Bar), b.beyond(y, b.Bar)) })
			hold(SpreadOf([]float64{worst}), "")
		}
	default:
		hold(SpreadOf(known(ours)), "")
	}
	if len(t.Invalid) > 0 {
		j.Verdict, j.By = Unjudged, "the row is invalid"
	}
	return j
}

// holdToOthers compares a figure with that of the subject that the bar names, or of each peer.
func (t *Table) holdToOthers(b Bar, ours []float64, scale float64, hold func(Spread, string)) {
	for _, other := range t.Subjects {
		if b.To != other.Name && (b.To != BestPeer || !other.Peer) {
			continue
		}
		theirs := t.values(other.Name, b.Key, scale)
		if b.Is == NoMore {
			hold(SpreadOf(PairedDifferences(ours, theirs)), other.Name)
		} else {
			hold(SpreadOf(PairedRatios(ours, theirs)), other.Name)
		}
	}
}

// String tells a judgement in a line.
func (j Judgement) String() string {
	return strings.Join([]string{j.Of + ": " + j.Title, j.want(), j.found(), j.ends()}, ": ")
}

// want is the bar and the aim in words.
func (j Judgement) want() string {
	number, to := Figure, ""
	switch {
	case j.Is == NoMore.String():
		return "≤ that of " + j.To
	case j.To != "":
		number, to = func(v float64) string { return fmt.Sprintf("%.2f", v) }, " × "+j.To
	}
	text := j.Is + " " + number(j.Bar) + to
	if j.Aim != j.Bar {
		text += ", aim " + number(j.Aim)
	}
	return text
}

func (j Judgement) found() string {
	if j.Found.N == 0 {
		return "-"
	}
	format := "%s [%s, %s]"
	if !j.Found.Sure {
		format = "%s {%s, %s}"
	}
	number := Figure
	if j.To != "" && j.Is != NoMore.String() {
		number = func(v float64) string { return fmt.Sprintf("%.3f", v) }
	}
	return fmt.Sprintf(format, number(j.Found.Median), number(j.Found.Low), number(j.Found.High))
}

func (j Judgement) ends() string {
	switch j.Verdict {
	case Missed:
		return "missed by " + j.By
	case Unsure:
		return "unsure: the interval reaches " + j.By + " beyond"
	case Unjudged:
		return "not judged: " + cmp.Or(j.By, "nothing to compare with")
	}
	return string(j.Verdict)
}

// Judgements writes all judgements, and returns how many of them fail.
func (r *Report) Judgements(w io.Writer, fails func(Verdict) bool) (failed int) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nrow\tfigure\twanted\tfound\tverdict\n")
	counts := make(map[Verdict]int)
	for _, table := range r.Tables {
		for _, j := range table.Judged {
			fmt.Fprintf(t, "%s\t%s: %s\t%s\t%s\t%s\n", j.Row, j.Of, j.Title, j.want(), j.found(), j.ends())
			counts[j.Verdict]++
			if fails(j.Verdict) {
				failed++
			}
		}
	}
	if len(counts) == 0 {
		return 0
	}
	t.Flush()
	fmt.Fprintf(w, "[95 %% interval of the median], {smallest, largest}: too few rounds for one. Aim reached: %d, met: %d, unsure: %d, missed: %d, not judged: %d\n",
		counts[AimReached], counts[Met], counts[Unsure], counts[Missed], counts[Unjudged])
	return failed
}

// ErrBars is how a run ends that was sound, and did not reach its bars.
var ErrBars = errors.New("bars are not reached")

// Err sums up the verdicts in a table. It returns an error if a table is invalid, or if a verdict fails.
func (r *Report) Err(w io.Writer, fails func(Verdict) bool) error {
	failed, invalid := r.Judgements(w, fails), 0
	for _, t := range r.Tables {
		if len(t.Invalid) > 0 {
			invalid++
		}
	}
	switch {
	case invalid > 0:
		return fmt.Errorf("%d of %d rows are invalid", invalid, len(r.Tables))
	case failed > 0:
		return fmt.Errorf("%d %w", failed, ErrBars)
	}
	return nil
}
