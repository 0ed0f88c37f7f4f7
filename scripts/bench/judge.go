//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"kubeproxy/scripts/internal/measure"
)

// A bar says what a figure of ours has to be for us to be content with a row, and what we aim at beyond
// that. It is the interval that has to lie within, and not only the median: what may be luck does
// not count.
type bar struct {
	key  string // of the metric
	to   string // what the figure is compared with
	is   relation
	bar  float64 // as a ratio or, compared with nobody, in the unit of the metric's column
	aim  float64 // the same; the bar itself if we aim at no more
	pool bool    // the figure is the 99th of a hundred of the row's single figures, all rounds together
}

// What a figure may be compared with, beside a peer by its name.
const (
	itself   = ""              // nothing
	bestPeer = "the best peer" // whichever other proxy does best, by this figure
)

type relation int

const (
	atMost relation = iota
	atLeast
	exactly
	noMore // the difference to the other's figure, which may be zero
)

func (r relation) String() string { return [...]string{"≤", "≥", "=", "−"}[r] }

// What every row owes that is done by peers too: no less done, no later, and no more work for the machine
// as a whole, wherever it may hide, than with the best of them.
var (
	rateBesidePeers    = bar{key: "rate", to: bestPeer, is: atLeast, bar: 0.95, aim: 1.05}
	p99BesidePeers     = bar{key: "p99", to: bestPeer, bar: 1.1, aim: 0.9}
	machineBesidePeers = bar{key: "machine", to: bestPeer, bar: 1, aim: 1}
)

// withBars adds those to the bar that is a row's own.
func withBars(own bar) []bar { return []bar{own, rateBesidePeers, p99BesidePeers, machineBesidePeers} }

// A judgement is what came of one bar, for one of ours.
type judgement struct {
	Row     string         `json:"row"`
	Of      string         `json:"of"`
	Title   string         `json:"title"` // of the figure
	To      string         `json:"to,omitempty"`
	Is      string         `json:"is"`
	Bar     float64        `json:"bar"`
	Aim     float64        `json:"aim"`
	Found   measure.Spread `json:"found"`
	Verdict verdict        `json:"verdict"`
	By      string         `json:"by,omitempty"` // how far the median misses the bar or, unsure, the interval
}

type verdict string

const (
	aimReached verdict = "aim reached"
	met        verdict = "met"
	unsure     verdict = "unsure" // the median is within, the interval is not
	missed     verdict = "missed"
	unjudged   verdict = "not judged" // there is nobody, or nothing, to compare
)

// content tells whether the bar is reached.
func (v verdict) content() bool { return v == aimReached || v == met }

// judge says what a spread is worth, given the bar.
func (b bar) judge(s measure.Spread) (verdict, string) {
	if s.N == 0 {
		return unjudged, ""
	}
	// How far a value lies beyond a mark; not at all, if that is negative.
	beyond := func(value, mark float64) float64 {
		switch b.is {
		case atLeast:
			return mark - value
		case exactly:
			return math.Abs(value - mark)
		}
		return value - mark
	}
	worst := func(mark float64) float64 { return max(beyond(s.Low, mark), beyond(s.High, mark)) }
	by := func(distance float64) string {
		if b.bar == 0 || b.is == noMore {
			return measure.Figure(distance)
		}
		return fmt.Sprintf("%.1f %%", 100*distance/b.bar)
	}
	switch {
	case b.aim != b.bar && worst(b.aim) <= 0:
		return aimReached, ""
	case worst(b.bar) <= 0:
		return met, ""
	case beyond(s.Median, b.bar) <= 0:
		return unsure, by(worst(b.bar))
	}
	return missed, by(beyond(s.Median, b.bar))
}

// judge holds each of ours to the bars of the row.
func (r *rowReport) judge(bars []bar, proxies []*proxy) {
	for _, p := range proxies {
		for _, b := range bars {
			if p.ours && r.has(b.key) {
				r.Judged = append(r.Judged, r.judgeOne(b, p, proxies))
			}
		}
	}
}

func (r *rowReport) judgeOne(b bar, p *proxy, proxies []*proxy) judgement {
	m := r.metrics[slices.IndexFunc(r.metrics, func(m metric) bool { return m.key == b.key })]
	j := judgement{Row: r.Name, Of: p.name, Title: m.title, To: b.to, Is: b.is.String(), Bar: b.bar, Aim: b.aim, Verdict: unjudged}
	ours := values(r.Samples[p.name], b.key, m.scale)
	hold := func(found measure.Spread, to string) {
		v, by := b.judge(found)
		// Whoever makes us look worst is the best.
		if v != unjudged && (j.Found.N == 0 || b.is == atLeast && found.Median < j.Found.Median || b.is != atLeast && found.Median > j.Found.Median) {
			j.Found, j.To, j.Verdict, j.By = found, to, v, by
		}
	}
	switch {
	case b.pool:
		var pooled []float64
		for _, s := range r.Samples[p.name] {
			for _, v := range s.Pool {
				pooled = append(pooled, v*m.scale)
			}
		}
		hold(measure.QuantileOf(pooled, 0.99), b.to)
	case b.to == itself:
		hold(measure.SpreadOf(known(ours)), b.to)
	default:
		for _, other := range proxies {
			if other.ours || other.isDirect() || b.to != bestPeer && b.to != other.name {
				continue
			}
			theirs := values(r.Samples[other.name], b.key, m.scale)
			if b.is == noMore {
				hold(measure.SpreadOf(measure.PairedDifferences(ours, theirs)), other.name)
			} else {
				hold(measure.SpreadOf(measure.PairedRatios(ours, theirs)), other.name)
			}
		}
	}
	if len(r.Invalid) > 0 {
		j.Verdict, j.By = unjudged, "the row is invalid"
	}
	return j
}

// has tells whether a row has a column of this key.
func (r *rowReport) has(key string) bool {
	return slices.ContainsFunc(r.metrics, func(m metric) bool { return m.key == key })
}

// String tells a judgement in a line.
func (j judgement) String() string {
	return strings.Join([]string{j.Of + ": " + j.Title, j.want(), j.found(), j.ends()}, ": ")
}

// want is the bar and the aim in words.
func (j judgement) want() string {
	number := measure.Figure
	to := ""
	switch {
	case j.Is == noMore.String():
		return "≤ that of " + j.To
	case j.To != itself:
		number, to = func(v float64) string { return fmt.Sprintf("%.2f", v) }, " × "+j.To
	}
	text := j.Is + " " + number(j.Bar) + to
	if j.Aim != j.Bar {
		text += ", aim " + number(j.Aim)
	}
	return text
}

func (j judgement) found() string {
	if j.Found.N == 0 {
		return "-"
	}
	format := "%s [%s, %s]"
	if !j.Found.Sure {
		format = "%s {%s, %s}"
	}
	number := measure.Figure
	if j.To != itself && j.Is != noMore.String() {
		number = func(v float64) string { return fmt.Sprintf("%.3f", v) }
	}
	return fmt.Sprintf(format, number(j.Found.Median), number(j.Found.Low), number(j.Found.High))
}

func (j judgement) ends() string {
	switch j.Verdict {
	case missed:
		return "missed by " + j.By
	case unsure:
		return "unsure: the interval reaches " + j.By + " beyond"
	case unjudged:
		if j.By != "" {
			return "not judged: " + j.By
		}
		return "not judged: nothing to compare with"
	}
	return string(j.Verdict)
}

// printJudgements sums all rows up, and returns how many bars are not reached.
func printJudgements(w io.Writer, rows []rowReport) (short int) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nrow\tfigure\twanted\tfound\tverdict\n")
	counts := make(map[verdict]int)
	for _, r := range rows {
		for _, j := range r.Judged {
			fmt.Fprintf(t, "%s\t%s: %s\t%s\t%s\t%s\n", j.Row, j.Of, j.Title, j.want(), j.found(), j.ends())
			counts[j.Verdict]++
			if !j.Verdict.content() {
				short++
			}
		}
	}
	t.Flush()
	fmt.Fprintf(w, "[95 %% interval of the median], {smallest, largest}: too few rounds for one. Aim reached: %d, met: %d, unsure: %d, missed: %d, not judged: %d\n",
		counts[aimReached], counts[met], counts[unsure], counts[missed], counts[unjudged])
	return short
}
