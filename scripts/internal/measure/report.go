//go:build linux

package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Report is everything that a program has found out.
type Report struct {
	Machine  string   `json:"machine"`
	Versions []string `json:"versions,omitempty"` // of those that are compared, with their command lines
	Rounds   int      `json:"rounds"`
	Seed     uint64   `json:"seed"`
	Busy     float64  `json:"busy_before"` // share of the processors in use before anything was measured
	Tables   []*Table `json:"rows"`
}

// A Subject is one of those that a table compares: a proxy, a size of the registry, a fleet.
type Subject struct {
	Name string
	Ours bool // it has bars, and is compared with the others
	Peer bool // it is another's, and may be the best
}

// A Metric is a column.
type Metric struct {
	Key   string
	Title string
	Scale float64 // from seconds, bytes or a plain number to what the title says
}

// Column makes a metric.
func Column(key, title string, scale float64) Metric { return Metric{key, title, scale} }

// A Sample is what one subject did in one round.
type Sample struct {
	Values map[string]float64 `json:"values"`         // by the keys of metrics; what cannot be had is missing
	Pool   []float64          `json:"pool,omitempty"` // single figures, for quantiles over all rounds
	Failed int                `json:"failed"`
	Why    string             `json:"why,omitempty"` // the first failure
}

// Fail counts failures.
func (s *Sample) Fail(n int, why string) {
	if s.Failed == 0 {
		s.Why = why
	}
	s.Failed += n
}

// A Table is what one row found out, or one step, or everything about some sizes.
type Table struct {
	Name    string               `json:"name"`
	Title   string               `json:"title"`
	Samples map[string][]Sample  `json:"samples"` // by subject, in the order of rounds
	Medians map[string]SpreadsOf `json:"medians"` // by subject; in the units of the columns
	Ratios  []RatioReport        `json:"ratios,omitempty"`
	Pools   map[string]Pool      `json:"pools,omitempty"`
	Judged  []Judgement          `json:"judged,omitempty"`
	Invalid []string             `json:"invalid,omitempty"` // what went wrong, if something did

	Subjects []Subject `json:"-"`
	Metrics  []Metric  `json:"-"`
}

// SpreadsOf has a spread for each metric.
type SpreadsOf map[string]Spread

// A RatioReport compares two subjects, round by round.
type RatioReport struct {
	Of     string    `json:"of"`
	To     string    `json:"to"`
	Paired SpreadsOf `json:"paired"`
}

// A Pool is the quantiles of single figures over all rounds, in milliseconds.
type Pool struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// NewTable makes a table without samples.
func NewTable(name, title string, metrics []Metric, subjects ...Subject) *Table {
	return &Table{Name: name, Title: title, Metrics: metrics, Subjects: subjects,
		Samples: make(map[string][]Sample), Medians: make(map[string]SpreadsOf), Pools: make(map[string]Pool)}
}

// values gives a metric of each round of a subject; NaN where a round has none.
func (t *Table) values(subject, key string, scale float64) []float64 {
	all := make([]float64, len(t.Samples[subject]))
	for i, s := range t.Samples[subject] {
		all[i] = math.NaN()
		if v, ok := s.Values[key]; ok {
			all[i] = v * scale
		}
	}
	return all
}

// known leaves out the rounds that have none.
func known(values []float64) []float64 { return slices.DeleteFunc(values, math.IsNaN) }

// Summarise works out the table. Each of ours is compared with every subject that is not ours, and with the first of
// ours.
func (t *Table) Summarise() {
	first := slices.IndexFunc(t.Subjects, func(s Subject) bool { return s.Ours })
	for i, s := range t.Subjects {
		t.summariseOne(s.Name)
		for j, other := range t.Subjects {
			if s.Ours && i != j && (!other.Ours || j == first && i != first) {
				t.Ratios = append(t.Ratios, RatioReport{s.Name, other.Name, t.paired(s.Name, other.Name)})
			}
		}
	}
}

func (t *Table) summariseOne(subject string) {
	medians := make(SpreadsOf)
	for _, m := range t.Metrics {
		if all := known(t.values(subject, m.Key, m.Scale)); len(all) > 0 {
			medians[m.Key] = SpreadOf(all)
		}
	}
	t.Medians[subject] = medians
	var all Sample
	for _, s := range t.Samples[subject] {
		all.Fail(s.Failed, s.Why)
		all.Pool = append(all.Pool, s.Pool...)
	}
	if all.Failed > 0 {
		t.Invalid = append(t.Invalid, fmt.Sprintf("%s: %d failed, the first: %s", subject, all.Failed, all.Why))
	}
	if n := len(all.Pool); n > 0 {
		slices.Sort(all.Pool)
		t.Pools[subject] = Pool{n, all.Pool[n/2] * 1e3, all.Pool[n*99/100] * 1e3, all.Pool[n-1] * 1e3}
	}
}

func (t *Table) paired(ours, theirs string) SpreadsOf {
	paired := make(SpreadsOf)
	for _, m := range t.Metrics {
		if ratios := PairedRatios(t.values(ours, m.Key, 1), t.values(theirs, m.Key, 1)); len(ratios) > 0 {
			paired[m.Key] = SpreadOf(ratios)
		}
	}
	return paired
}

// Print writes a table with a column for each metric, and a line for each subject and each ratio.
func (t *Table) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", t.Name, t.Title)
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	line := func(name string, cell func(Metric) string) {
		fmt.Fprint(tw, name)
		for _, m := range t.Metrics {
			fmt.Fprintf(tw, "\t%s", cell(m))
		}
		fmt.Fprintln(tw, "\t")
	}
	line("", func(m Metric) string { return m.Title })
	rounds, sure := 0, true
	for _, s := range t.Subjects {
		rounds = max(rounds, len(t.Samples[s.Name]))
		line(s.Name, func(m Metric) string {
			return orDash(t.Medians[s.Name], m.Key, func(s Spread) string { return Figure(s.Median) })
		})
	}
	for _, r := range t.Ratios {
		line(r.Of+" / "+r.To, func(m Metric) string {
			return orDash(r.Paired, m.Key, func(s Spread) string {
				sure = sure && s.Sure
				return fmt.Sprintf("%.3f [%.3f, %.3f]", s.Median, s.Low, s.High)
			})
		})
	}
	tw.Flush()
	if len(t.Ratios) > 0 {
		what := "95 % interval"
		if !sure {
			what = "smallest, largest: too few rounds for a 95 % interval"
		}
		fmt.Fprintf(w, "  medians of %d rounds; ratios within a round: median [%s]\n", rounds, what)
	}
	t.printNotes(w)
}

func orDash(of SpreadsOf, key string, show func(Spread) string) string {
	if s, ok := of[key]; ok {
		return show(s)
	}
	return "-"
}

// PrintLines writes a table with a line for each metric, and a column for each subject.
func (t *Table) PrintLines(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", t.Name, t.Title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range t.Subjects {
		fmt.Fprintf(tw, "\t%s", s.Name)
	}
	fmt.Fprintln(tw)
	for _, m := range t.Metrics {
		cells := []string{"  " + m.Title}
		for _, s := range t.Subjects {
			cells = append(cells, orDash(t.Medians[s.Name], m.Key, Spread.String))
		}
		if slices.ContainsFunc(cells[1:], func(cell string) bool { return cell != "-" }) {
			fmt.Fprintln(tw, strings.Join(cells, "\t"))
		}
	}
	tw.Flush()
	t.printNotes(w)
}

// ClientsBusy is no column: how much of a processor each thread of the clients used. Near 1 the clients limit the rate,
// and not the subject.
const ClientsBusy = "clients"

func (t *Table) printNotes(w io.Writer) {
	for _, s := range t.Subjects {
		if p, ok := t.Pools[s.Name]; ok {
			fmt.Fprintf(w, "  %s, all rounds together: %d changes, p50 %.2f ms, p99 %.2f ms, max %.2f ms\n", s.Name, p.N, p.P50, p.P99, p.Max)
		}
		if busy := SpreadOf(known(t.values(s.Name, ClientsBusy, 100))); busy.Median > 90 && (s.Ours || s.Peer) {
			fmt.Fprintf(w, "  NOTE: with %s the clients' threads were busy for %.0f %% of the time: perhaps it is they who were measured\n", s.Name, busy.Median)
		}
	}
	for _, j := range t.Judged {
		fmt.Fprintf(w, "  %s\n", j)
	}
	for _, why := range t.Invalid {
		fmt.Fprintf(w, "  INVALID: %s\n", why)
	}
}

// Begin looks at the machine, and says what it is like before anything is measured.
func (r *Report) Begin(w io.Writer, busy float64, what string) {
	r.Machine, r.Busy = Machine(), busy
	fmt.Fprintln(w, r.Machine)
	for _, v := range r.Versions {
		fmt.Fprintln(w, " ", v)
	}
	fmt.Fprintf(w, "%s; before it begins %.0f %% of the processors are in use\n", what, 100*busy)
	if busy > 0.05 {
		fmt.Fprintln(w, "WARNING: others are at work on this machine: the ratios will spread, times will be longer, and the absolute figures mean little")
	}
}

// Add takes a table that is complete, and writes everything to the file, if there is one: so that what is known is not
// lost.
func (r *Report) Add(t *Table, file string) error {
	r.Tables = append(r.Tables, t)
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Merge adds the values of another table, of the same rounds, to the samples of this one.
func (t *Table) Merge(other *Table) {
	for name, samples := range other.Samples {
		for i, s := range samples {
			mine := &t.Samples[name][i]
			for key, v := range s.Values {
				mine.Values[key] = v
			}
			mine.Fail(s.Failed, s.Why)
		}
	}
	t.Invalid = nil
	for _, s := range t.Subjects {
		t.summariseOne(s.Name)
	}
}
