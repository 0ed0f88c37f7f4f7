//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"kubeproxy/scripts/internal/measure"
)

// A report is everything that was found out.
type report struct {
	Machine string                          `json:"machine"`
	Rounds  int                             `json:"rounds"`
	Changes int                             `json:"changes"`
	Seed    uint64                          `json:"seed"`
	Busy    float64                         `json:"busy_before"` // share of the processors in use before anything was measured
	Samples map[string]map[string][]float64 `json:"samples"`     // by size and key, in seconds and bytes, in the order of rounds
	Bars    []bar                           `json:"bars"`
	Why     string                          `json:"first_failure,omitempty"` // of a client during the churn
	Failed  []string                        `json:"failed,omitempty"`        // what could not be measured

	sizes []size
}

// A bar is what a value has to be at most.
type bar struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Bar   float64 `json:"bar"`
	Unit  string  `json:"unit"`
	Met   bool    `json:"met"`
}

func newReport(o options, busy float64) *report {
	return &report{Machine: measure.Machine(), Rounds: o.rounds, Changes: o.changes, Seed: o.seed, Busy: busy,
		Samples: make(map[string]map[string][]float64), sizes: o.sizes}
}

// fail notes that something could not be measured. The other sizes and rounds can.
func (r *report) fail(err error) {
	r.Failed = append(r.Failed, err.Error())
	fmt.Println("FAILED:", err)
}

func (r *report) note(s size, key string, v float64) {
	if r.Samples[s.name] == nil {
		r.Samples[s.name] = make(map[string][]float64)
	}
	r.Samples[s.name][key] = append(r.Samples[s.name][key], v)
}

// noteTimes notes the median and the 99th percentile of some times.
func noteTimes(note func(string, float64), key string, times []float64) {
	sorted := slices.Sorted(slices.Values(times))
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1)+0.5)] }
	note(key+"50", at(0.50))
	note(key+"99", at(0.99))
}

// A line is a row of the table.
type line struct {
	key, title string
	scale      float64 // from seconds, bytes or a plain number to what the title says
}

var lines = []line{
	{"endpointsnet", "a change of endpoints: CPU us", 1e6},
	{"endpoints", "  with the connection that sees it: CPU us", 1e6},
	{"bare", "  a bare watcher of the same, which does nothing: CPU us", 1e6},
	{"reading", "  who only reads as many bytes from a socket: CPU us", 1e6},
	{"naive", "  who rebuilds everything instead: CPU us", 1e6},
	{"behind50", "  put to served, after a bare watcher, idle: p50 ms", 1e3},
	{"behind99", "  p99 ms", 1e3},
	{"saturated50", "  the same beside saturating traffic: p50 ms", 1e3},
	{"saturated99", "  p99 ms", 1e3},
	{"traffic", "  round trips/s of that traffic", 1},
	{"portsnet", "a change of a port: CPU us", 1e6},
	{"ports", "  with the connection that sees it: CPU us", 1e6},
	{"portsbehind50", "  put to open, after a bare watcher: p50 ms", 1e3},
	{"portsbehind99", "  p99 ms", 1e3},
	{"resync", "a resync that finds nothing: CPU ms", 1e3},
	{"resident", "  VmRSS while one follows the other: MB", 1e-6},
	{"list", "etcd answers a bare client that lists everything: ms", 1e3},
	{"start", "from exec to all listening: ms", 1e3},
	{"startover", "  more than that answer: ms", 1e3},
	{"residentatstart", "VmRSS, started: MB", 1e-6},
	{"anonymousatstart", "  RssAnon: MB", 1e-6},
	{"residentatend", "VmRSS, after all changes: MB", 1e-6},
	{"anonymousatend", "  RssAnon: MB", 1e-6},
	{"goroutines", "goroutines", 1},
	{"descriptors", "descriptors", 1},
	{"churned", "churn: changes/s", 1},
	{"churncpu", "  CPU us of one", 1e6},
	{"failed", "  clients of untouched services that failed", 1},
	{"failedcalm", "  with the same puts where nobody watches", 1},
	{"trips99", "  their round trips: p99 ms", 1e3},
	{"trips99calm", "  with the same puts where nobody watches: p99 ms", 1e3},
	{"connects99", "  their connections: p99 ms", 1e3},
	{"connects99calm", "  with the same puts where nobody watches: p99 ms", 1e3},
	{"anonymousbeforechurn", "  RssAnon before: MB", 1e-6},
	{"anonymousinchurn", "  RssAnon at its end: MB", 1e-6},
	{"anonymousafterchurn", "  RssAnon half as long after it: MB", 1e-6},
}

func (r *report) median(size, key string) (float64, bool) {
	values := r.Samples[size][key]
	return measure.SpreadOf(values).Median, len(values) > 0
}

// The sizes that are compared, and those whose changes have bars: of services as they are.
const few, many = "10", "10000"

var ordinary = []string{few, "1000", many}

// judge compares with what is promised.
func (r *report) judge() {
	add := func(size, key, what string, scale, most float64, unit string) {
		if v, ok := r.median(size, key); ok {
			r.Bars = append(r.Bars, bar{what + ", " + size + " services", v * scale, most, unit, v*scale <= most})
		}
	}
	for _, size := range ordinary {
		add(size, "endpointsnet", "CPU of a change of endpoints", 1e6, 100, "us")
		add(size, "portsnet", "CPU of a change of a port", 1e6, 100, "us")
	}
	for _, c := range []struct{ key, what string }{{"endpointsnet", "CPU of a change of endpoints"}, {"portsnet", "CPU of a change of a port"}} {
		if ratios := measure.PairedRatios(r.Samples[many][c.key], r.Samples[few][c.key]); len(ratios) > 0 {
			v := measure.SpreadOf(ratios).Median
			r.Bars = append(r.Bars, bar{c.what + ", 10000 services to 10", v, 1.5, "", v <= 1.5})
		}
	}
	add(many, "behind99", "put to served, p99 after a bare watcher", 1e3, 5, "ms")
	add(many, "portsbehind99", "put to open, p99 after a bare watcher", 1e3, 5, "ms")
	add(many, "saturated99", "put to served beside saturating traffic, p99", 1e3, 5, "ms")
	add(many, "resync", "CPU of an unchanged resync", 1e3, 60, "ms")
	add(many, "startover", "exec to all listening, more than etcd's answer", 1, 1, "s")
	add(many, "resident", "VmRSS while resync follows resync", 1e-6, 80, "MB")
	add(many, "residentatend", "VmRSS after all changes", 1e-6, 80, "MB")

	churned := r.churned()
	if failed := r.Samples[churned]["failed"]; len(failed) > 0 { // in any round
		most := slices.Max(failed)
		r.Bars = append(r.Bars, bar{"churn: clients of untouched services that failed, in the worst round", most, 0, "", most == 0})
	}
	for _, c := range []struct {
		key, calm, what string
		most            float64
	}{
		{"trips99", "trips99calm", "churn: p99 of round trips, to puts that nobody watches", 1.2},
		{"connects99", "connects99calm", "churn: p99 of connections, to puts that nobody watches", 1.2},
		{"anonymousafterchurn", "anonymousbeforechurn", "churn: RssAnon afterwards, to before", 1.1},
	} {
		if ratios := measure.PairedRatios(r.Samples[churned][c.key], r.Samples[churned][c.calm]); len(ratios) > 0 {
			v := measure.SpreadOf(ratios).Median
			r.Bars = append(r.Bars, bar{c.what, v, c.most, "", v <= c.most})
		}
	}
}

// churnAt is the index of the size at which the churn is: 10,000 services, or the most that there are.
func (r *report) churnAt() int {
	most := 0
	for i, s := range r.sizes {
		if s.services > r.sizes[most].services {
			most = i
		}
	}
	return most
}

func (r *report) churned() string { return r.sizes[r.churnAt()].name }

func (r *report) missed() int {
	n := 0
	for _, b := range r.Bars {
		if !b.Met {
			n++
		}
	}
	return n
}

func (r *report) printHead(w io.Writer) {
	fmt.Fprintf(w, "%s\n%d rounds of %d changes, seed %d; before it begins %.0f %% of the processors are in use\n", r.Machine, r.Rounds, r.Changes, r.Seed, 100*r.Busy)
	if r.Busy > 0.05 {
		fmt.Fprintln(w, "WARNING: others are at work on this machine: times mean little, and processor times something")
	}
}

// print writes everything for people.
func (r *report) print(w io.Writer) {
	fmt.Fprintln(w, "\nmedians of all rounds [smallest, largest, or the 95 % interval from 6 rounds on], by services")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range r.sizes {
		fmt.Fprintf(t, "\t%s", s.name)
	}
	fmt.Fprintln(t)
	for _, l := range lines {
		cells := []string{l.title}
		known := false
		for _, s := range r.sizes {
			values := r.Samples[s.name][l.key]
			if len(values) == 0 {
				cells = append(cells, "-")
				continue
			}
			known = true
			spread := measure.SpreadOf(values)
			cell := measure.Figure(spread.Median * l.scale)
			if len(values) > 1 {
				cell += fmt.Sprintf(" [%s, %s]", measure.Figure(spread.Low*l.scale), measure.Figure(spread.High*l.scale))
			}
			cells = append(cells, cell)
		}
		if known {
			fmt.Fprintln(t, strings.Join(cells, "\t"))
		}
	}
	t.Flush()
	if r.Why != "" {
		fmt.Fprintf(w, "the first client that failed: %s\n", r.Why)
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, b := range r.Bars {
		verdict := "ok"
		if !b.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(t, "%s\t%s\tat most %s %s\t%s\n", b.What, measure.Figure(b.Value), measure.Figure(b.Bar), b.Unit, verdict)
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
