//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"

	"kubeproxy/scripts/internal/measure"
)

// A report is everything that was found out.
type report struct {
	Machine  string      `json:"machine"`
	Versions []string    `json:"versions"` // of those that are compared, with their command lines
	Rounds   int         `json:"rounds"`
	Measured float64     `json:"measured_seconds"`
	Seed     uint64      `json:"seed"`
	Idle     float64     `json:"busy_before"` // share of the processors in use before anything was measured
	Rows     []rowReport `json:"rows"`
}

// A rowReport is what one row found out.
type rowReport struct {
	Name    string               `json:"name"`
	Title   string               `json:"title"`
	Samples map[string][]sample  `json:"samples"` // by proxy, in the order of rounds
	Medians map[string]spreadsOf `json:"medians"` // by proxy; in the units of the columns
	Ratios  []ratioReport        `json:"ratios"`
	Pools   map[string]pool      `json:"pools,omitempty"`
	Judged  []judgement          `json:"judged,omitempty"`
	Invalid []string             `json:"invalid,omitempty"` // what went wrong, if something did

	order   []string
	metrics []metric
}

type spreadsOf map[string]measure.Spread // by metric

// A ratioReport compares two proxies, round by round.
type ratioReport struct {
	Of     string    `json:"of"`
	To     string    `json:"to"`
	Paired spreadsOf `json:"paired"`
}

// A pool is the quantiles of single figures over all rounds, in milliseconds.
type pool struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// values gives a metric of each round; NaN where a round has none.
func values(samples []sample, key string, scale float64) []float64 {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = math.NaN()
		if v, ok := s.Values[key]; ok {
			all[i] = v * scale
		}
	}
	return all
}

// known leaves out the rounds that have none.
func known(values []float64) []float64 { return slices.DeleteFunc(values, math.IsNaN) }

// summarise works out a row. Each of ours is compared with every other proxy that is not ours, and
// with the first of ours.
func summarise(r row, proxies []*proxy, samples map[string][]sample) rowReport {
	out := rowReport{Name: r.name, Title: r.title, Samples: samples, Medians: make(map[string]spreadsOf), Pools: make(map[string]pool), metrics: r.metrics}
	var first *proxy
	for _, p := range proxies {
		all := samples[p.name]
		out.order = append(out.order, p.name)
		medians := make(spreadsOf)
		for _, m := range r.metrics {
			if all := known(values(all, m.key, m.scale)); len(all) > 0 {
				medians[m.key] = measure.SpreadOf(all)
			}
		}
		out.Medians[p.name] = medians
		failed, why := 0, ""
		var pooled []float64
		for _, s := range all {
			if failed == 0 {
				why = s.Why
			}
			failed += s.Failed
			pooled = append(pooled, s.Pool...)
		}
		if failed > 0 {
			out.Invalid = append(out.Invalid, fmt.Sprintf("%s: %d failed, the first: %s", p.name, failed, why))
		}
		if n := len(pooled); n > 0 {
			slices.Sort(pooled)
			out.Pools[p.name] = pool{n, pooled[n/2] * 1e3, pooled[n*99/100] * 1e3, pooled[n-1] * 1e3}
		}
		if p.ours && first == nil {
			first = p
		}
	}
	for _, p := range proxies {
		for _, other := range proxies {
			if !p.ours || p == other || other.ours && (other != first || p == first) {
				continue
			}
			paired := make(spreadsOf)
			for _, m := range r.metrics {
				if ratios := measure.PairedRatios(values(samples[p.name], m.key, 1), values(samples[other.name], m.key, 1)); len(ratios) > 0 {
					paired[m.key] = measure.SpreadOf(ratios)
				}
			}
			out.Ratios = append(out.Ratios, ratioReport{p.name, other.name, paired})
		}
	}
	return out
}

// print writes a row for people.
func (r *rowReport) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", r.Name, r.Title)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	for _, m := range r.metrics {
		fmt.Fprintf(t, "\t%s", m.title)
	}
	fmt.Fprintln(t, "\t")
	cells := func(name string, of spreadsOf, show func(measure.Spread) string) {
		fmt.Fprint(t, name)
		for _, m := range r.metrics {
			if s, ok := of[m.key]; ok {
				fmt.Fprintf(t, "\t%s", show(s))
			} else {
				fmt.Fprint(t, "\t-")
			}
		}
		fmt.Fprintln(t, "\t")
	}
	rounds, sure := 0, true
	for _, name := range r.order {
		rounds = max(rounds, len(r.Samples[name]))
		cells(name, r.Medians[name], func(s measure.Spread) string { return measure.Figure(s.Median) })
	}
	for _, ratio := range r.Ratios {
		cells(ratio.Of+" / "+ratio.To, ratio.Paired, func(s measure.Spread) string {
			sure = sure && s.Sure
			return fmt.Sprintf("%.3f [%.3f, %.3f]", s.Median, s.Low, s.High)
		})
	}
	t.Flush()
	if len(r.Ratios) > 0 {
		what := "95 % interval"
		if !sure {
			what = "smallest, largest: too few rounds for a 95 % interval"
		}
		fmt.Fprintf(w, "  medians of %d rounds; ratios within a round: median [%s]\n", rounds, what)
	}
	for _, name := range r.order {
		if p, ok := r.Pools[name]; ok {
			fmt.Fprintf(w, "  %s, all rounds together: %d changes, p50 %.2f ms, p99 %.2f ms, max %.2f ms\n", name, p.N, p.P50, p.P99, p.Max)
		}
	}
	for _, name := range r.order {
		busy := slices.DeleteFunc(values(r.Samples[name], clientsBusy, 100), math.IsNaN)
		if s := measure.SpreadOf(busy); name != "direct" && s.Median > 90 {
			fmt.Fprintf(w, "  NOTE: with %s the clients' threads were busy for %.0f %% of the time: perhaps it is they who were measured\n", name, s.Median)
		}
	}
	for _, j := range r.Judged {
		fmt.Fprintf(w, "  %s\n", j)
	}
	for _, why := range r.Invalid {
		fmt.Fprintf(w, "  INVALID: %s\n", why)
	}
}

// write stores the report as JSON.
func (r *report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
