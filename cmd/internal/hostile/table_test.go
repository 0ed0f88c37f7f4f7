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
	Verdict               string
}

// A comparison is what a bystander felt of a load aimed at the proxy, and at a sink.
type comparison struct {
	Proxy, Sink         time.Duration // p99 of its round trips: the median of all times
	ProxyTook, SinkTook time.Duration // until all of the load had been there: the same
	Ratios              []float64     // of p99, pair by pair, in their order; none in the short form
}

// ratio is what is judged.
func (c comparison) ratio() float64 { return c.Ratios[len(c.Ratios)/2] }

// most is how much longer than beside a sink a bystander may wait, and slowed how much longer the load may take to
// come: past that it is another load, and to compare the two would flatter the proxy.
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
		if r.Turn > longestTurn {
			t.Errorf("a turn of a loop took %v; want %v at most", r.Turn, longestTurn)
		}
		if f.ratio() > most && f.Proxy > noise {
			t.Errorf("the bystander's p99 is %v beside the proxy and %v beside a sink: a ratio of %.2f; want %.1f at most", f.Proxy, f.Sink, f.ratio(), most)
		}
		if float64(f.ProxyTook) > slowed*float64(f.SinkTook) {
			t.Errorf("the load took %v to come to the proxy and %v to the sink: that is not the same", f.ProxyTook, f.SinkTook)
		}
	}
	if r.Verdict = "ok"; t.Failed() {
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
			p99 = fmt.Sprintf("%v; beside a sink %v; ratio %.2f, of %.2f; the load took %v and %v", f.Proxy.Round(10*time.Microsecond), f.Sink.Round(10*time.Microsecond),
				f.ratio(), f.Ratios, f.ProxyTook.Round(100*time.Millisecond), f.SinkTook.Round(100*time.Millisecond))
		}
		if r.Turn > 0 {
			p99 += fmt.Sprintf("; longest turn %v", r.Turn.Round(10*time.Microsecond))
		}
		fmt.Printf("%-6s  %s\n        refused  %s\n        memory   %s before, %s at most, %s after; bound %s\n        p99      %s\n",
			r.Verdict, r.Scenario, r.Refused, mebibytes(r.Before), mebibytes(r.Highest), mebibytes(r.Rest), mebibytes(r.Bound), p99)
	}
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }
