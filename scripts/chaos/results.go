package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"kubeproxy/scripts/chaos/faults"
)

// Within these, what is served must be right again after etcd can answer. silentBound is for faults that only silence shows.
const (
	bound       = 2 * time.Second
	silentBound = 5 * time.Second
)

// results is what the table is made of.
type results struct {
	factor int // of the bounds

	mu      sync.Mutex // guards the fields below
	now     string     // the fault that is being injected or recovered from; "" between faults
	rows    map[string]*row
	writes  int
	failed  int // clients
	reasons []string
}

// A row is one fault's.
type row struct {
	recoveries []time.Duration
	wrong      int
	failed     int
	missed     int // recoveries that took longer than they may
}

func newResults(factor int) *results { return &results{factor: factor, rows: make(map[string]*row)} }

// begin sets the fault that wrong states and failed clients are counted for.
func (t *results) begin(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = name
}

func (t *results) row(name string) *row {
	if t.rows[name] == nil {
		t.rows[name] = new(row)
	}
	return t.rows[name]
}

func (t *results) recovered(f faults.Fault, took time.Duration) (inTime bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.row(f.Name)
	r.recoveries = append(r.recoveries, took)
	if took > t.bound(f) {
		r.missed++
		t.reasons = append(t.reasons, fmt.Sprintf("after %s it took %v until what is served was right; the bound is %v", f.Name, took.Round(time.Millisecond), t.bound(f)))
		return false
	}
	return true
}

func (t *results) wrong(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.row(t.now).wrong++
	t.reasons = append(t.reasons, err.Error())
}

// clientFailed counts a failed client, and reports whether it is one of the first.
func (t *results) clientFailed(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.row(t.now).failed++
	if t.failed++; t.failed > 20 {
		return false
	}
	t.reasons = append(t.reasons, "a client failed: "+err.Error())
	return true
}

func (t *results) wrote() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes++
}

func (t *results) written() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writes
}

// failures returns what went wrong, in order.
func (t *results) failures() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.reasons)
}

// bound is how long recovery may take. On a busy machine, as that of the tests, it may take longer by a factor.
func (t *results) bound(f faults.Fault) time.Duration {
	if f.Silent {
		return silentBound * time.Duration(t.factor)
	}
	return bound * time.Duration(t.factor)
}

// print writes the table.
func (t *results) print(out io.Writer, all []faults.Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "fault\ttimes\tmedian\tworst\tbound\twrong states\tfailed clients\tset by")
	times, wrong, failed := 0, 0, 0
	line := func(name string, r *row, bound, knob string) {
		median, worst := "-", "-"
		if n := len(r.recoveries); n > 0 {
			slices.Sort(r.recoveries)
			median, worst = seconds(r.recoveries[n/2]), seconds(r.recoveries[n-1])
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d\t%d\t%s\n", name, len(r.recoveries), median, worst, bound, r.wrong, r.failed, knob)
		times, wrong, failed = times+len(r.recoveries), wrong+r.wrong, failed+r.failed
	}
	for _, f := range all {
		if r := t.rows[f.Name]; r != nil {
			line(f.Name, r, seconds(t.bound(f)), f.Knob)
		}
	}
	if r := t.rows[""]; r != nil {
		line("(between faults)", r, "-", "")
	}
	fmt.Fprintf(w, "in all\t%d\t\t\t\t%d\t%d\t\n", times, wrong, failed)
	_ = w.Flush() // to the terminal, or a buffer
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }
