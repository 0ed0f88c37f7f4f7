//go:build linux

package hostile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A row is what one scenario came to.
type row struct {
	Scenario              string
	Refused               string
	Before, Highest, Rest uint64 // bytes
	Bound                 uint64 // that Highest may not pass
	Felt                  comparison
	Turn                  time.Duration // the longest turn of a loop; 0 if it is not measured
	Yardstick             time.Duration // how long 5 ms of work took threads beside it, at the longest
	FirstThread           time.Duration // and the first of these alone
	Slow                  bool          // a bound of time was exceeded
	Verdict               string
}

// A comparison is what a bystander felt of a load aimed at the proxy, and at a sink, and of the same load without the attack. Each is
// the median of all times; ratios are in their order, and there are none in the short form.
type comparison struct {
	Proxy, Sink, Innocent side
	Ratios                []float64 // of the proxy to the sink
	InnocentRatios        []float64 // of the proxy to the innocent load; none where there is no such load
}

// judged is what the proxy is judged beside: the load without the attack, or else the sink.
func (c comparison) judged() (what string, beside side, ratios []float64) {
	if len(c.InnocentRatios) > 0 {
		return "the same load without the attack", c.Innocent, c.InnocentRatios
	}
	return "a sink", c.Sink, c.Ratios
}

// middle is the median of ratios.
func middle(ratios []float64) float64 { return ratios[len(ratios)/2] }

// most is how much longer than beside the load that the proxy is judged by a bystander may wait, and slowed how much longer the load may
// take to come than to the sink: past that it is another load, and to compare the two would flatter the proxy.
const (
	most   = 2.0
	slowed = 1.25

	noise       = time.Millisecond // a p99 up to this is not judged by its ratio: the scheduler decides it
	longestTurn = 20 * time.Millisecond
)

// judge enters a row into the table, with the verdict. P99 is judged in full only: of a short run it says nothing.
func (r row) judge(t *testing.T) {
	t.Helper()
	if r.Highest > r.Bound {
		t.Errorf("memory rose from %s to %s; want %s at most", mebibytes(r.Before), mebibytes(r.Highest), mebibytes(r.Bound))
	}
	if f := r.Felt; len(f.Ratios) > 0 {
		if bound := max(longestTurn, r.Yardstick); r.Turn > bound {
			r.tooSlow(t, "a turn of a loop took %v; want %v at most (the yardstick took %v)", r.Turn, bound, r.Yardstick)
		}
		what, beside, ratios := f.judged()
		ratio, slower := middle(ratios), float64(f.Proxy.Took)/float64(max(beside.Took, 1))
		switch {
		case len(f.InnocentRatios) > 0: // what the attack adds also delays its writer: a load that comes so much slower counts for more
			ratio *= max(1, slower)
		case slower > slowed:
			r.tooSlow(t, "the load took %v to come to the proxy; %s took %v: that is not the same", f.Proxy.Took, what, beside.Took)
		}
		if ratio > most && f.Proxy.P99 > noise {
			r.tooSlow(t, "the bystander's p99 is %v beside the attack, in %v, and %v beside %s, in %v: a ratio of %.2f; want %.1f at most",
				f.Proxy.P99, f.Proxy.Took, beside.P99, what, beside.Took, ratio, most)
		}
	}
	if r.Verdict = "ok"; t.Failed() || r.Slow {
		r.Verdict = "FAILED"
	}
	text, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Getenv(tableEnv), strings.ReplaceAll(t.Name(), "/", "-")+".json"), text, 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}

func printTable(dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		return
	}
	slices.Sort(files)
	fmt.Println()
	for _, file := range files {
		var r row
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		p99 := "not measured"
		if f := r.Felt; len(f.Ratios) > 0 {
			p99 = fmt.Sprintf("%v; %s", f.Proxy.P99.Round(10*time.Microsecond), f.Sink.told("beside a sink", f.Ratios))
			if len(f.InnocentRatios) > 0 {
				p99 = fmt.Sprintf("%v; %s; for information, %s", f.Proxy.P99.Round(10*time.Microsecond), f.Innocent.told("beside the load without the attack", f.InnocentRatios), f.Sink.told("beside a sink", f.Ratios))
			}
			p99 += fmt.Sprintf("; the load took %v", f.Proxy.Took.Round(100*time.Millisecond))
		}
		if r.Turn > 0 {
			p99 += fmt.Sprintf("; longest turn %v, yardstick %v, its first thread %v", r.Turn.Round(10*time.Microsecond), r.Yardstick.Round(10*time.Microsecond), r.FirstThread.Round(10*time.Microsecond))
		}
		fmt.Printf("%-6s  %s\n        refused  %s\n        memory   %s before, %s at most, %s after; bound %s\n        p99      %s\n",
			r.Verdict, r.Scenario, r.Refused, mebibytes(r.Before), mebibytes(r.Highest), mebibytes(r.Rest), mebibytes(r.Bound), p99)
	}
}

func (s side) told(what string, ratios []float64) string {
	return fmt.Sprintf("%s %v, in %v; ratio %.2f, of %.2f", what, s.P99.Round(10*time.Microsecond), s.Took.Round(100*time.Millisecond), middle(ratios), ratios)
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }
