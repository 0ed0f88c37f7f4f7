//go:build linux

package hostile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A row is what one scenario came to.
type row struct {
	Scenario              string
	Refused               string
	Before, Highest, Rest uint64 // bytes
	Bound                 uint64 // that Highest may not pass
	Proxy, Sink           time.Duration
	Ratio                 float64 // 0: not measured
	Unjudged              bool    // the ratio is told, and nothing more
	Verdict               string
}

// most is how much longer than beside a sink a bystander may wait.
const most = 2.0

// judge enters a row into the table, with the verdict. P99 is judged in full only: of a short run it says nothing.
func (r row) judge(t *testing.T) {
	t.Helper()
	if r.Highest > r.Bound {
		t.Errorf("memory rose from %s to %s; want %s at most", mebibytes(r.Before), mebibytes(r.Highest), mebibytes(r.Bound))
	}
	if *full && !r.Unjudged && r.Ratio > most {
		t.Errorf("the bystander's p99 is %v beside the proxy and %v beside a sink: a ratio of %.2f; want %.1f at most", r.Proxy, r.Sink, r.Ratio, most)
	}
	if r.Verdict = "ok"; t.Failed() {
		r.Verdict = "FAILED"
	}
	text, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Getenv(tableEnv), t.Name()+".json"), text, 0o600)
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
		if r.Ratio > 0 {
			p99 = fmt.Sprintf("%v; beside a sink %v; ratio %.2f", r.Proxy.Round(10*time.Microsecond), r.Sink.Round(10*time.Microsecond), r.Ratio)
		}
		if r.Unjudged && r.Ratio > 0 {
			p99 += " (not judged)"
		}
		fmt.Printf("%-6s  %s\n        refused  %s\n        memory   %s before, %s at most, %s after; bound %s\n        p99      %s\n",
			r.Verdict, r.Scenario, r.Refused, mebibytes(r.Before), mebibytes(r.Highest), mebibytes(r.Rest), mebibytes(r.Bound), p99)
	}
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }
