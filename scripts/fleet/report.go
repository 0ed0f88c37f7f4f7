//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"kubeproxy/scripts/internal/measure"
)

// A report is everything that was found out.
type report struct {
	Machine   string   `json:"machine"`
	Busy      float64  `json:"busy_before"` // share of the processors in use before anything was measured
	Services  int      `json:"services"`
	Endpoints int      `json:"endpoints"` // of each
	Results   []result `json:"results"`
}

// A result is what a step found out.
type result struct {
	Fleet   string   `json:"fleet"`
	Way     string   `json:"way"`
	Step    string   `json:"step"`
	About   string   `json:"about"`
	Figures []figure `json:"figures"`
}

// A figure is one that was measured, as often as there were rounds.
type figure struct {
	Name   string         `json:"name"`
	Unit   string         `json:"unit"`
	Values []float64      `json:"values"`
	Spread measure.Spread `json:"spread"`
}

// record adds a value to the figure of this name.
func (r *result) record(name, unit string, value float64) {
	for i := range r.Figures {
		if r.Figures[i].Name == name {
			r.Figures[i].Values = append(r.Figures[i].Values, value)
			return
		}
	}
	r.Figures = append(r.Figures, figure{Name: name, Unit: unit, Values: []float64{value}})
}

// begin says what is measured, and where.
func (r *report) begin(w io.Writer) {
	fmt.Fprintln(w, r.Machine)
	fmt.Fprintf(w, "%d services with %d endpoints each; before it begins %.0f %% of the processors are in use\n", r.Services, r.Endpoints, 100*r.Busy)
	if r.Busy > 0.05 {
		fmt.Fprintln(w, "WARNING: others are at work on this machine: times will be longer than they need to be, and processor time is a little more")
	}
}

// add takes in a result, and prints it.
func (r *report) add(w io.Writer, found result) {
	for i := range found.Figures {
		found.Figures[i].Spread = measure.SpreadOf(found.Figures[i].Values)
	}
	r.Results = append(r.Results, found)
	fmt.Fprintf(w, "\n%s, %s, %s: %s\n", found.Fleet, found.Way, found.Step, found.About)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range found.Figures {
		fmt.Fprintf(t, "  %s\t%s %s", f.Name, measure.Figure(f.Spread.Median), f.Unit)
		switch s := f.Spread; {
		case s.Sure:
			fmt.Fprintf(t, "\tmedian of %d, 95 %% interval [%s, %s]", s.N, measure.Figure(s.Low), measure.Figure(s.High))
		case s.N > 1:
			fmt.Fprintf(t, "\tmedian of %d, from %s to %s", s.N, measure.Figure(s.Low), measure.Figure(s.High))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

// write stores the report as JSON.
func (r *report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
