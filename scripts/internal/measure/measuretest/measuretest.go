//go:build linux

// Package measuretest has what the tests of several measurements need.
package measuretest

import (
	"encoding/json"
	"os"
	"testing"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/measure"
)

// KubeProxy builds the program that is measured, and returns its file.
func KubeProxy(t testing.TB) string {
	t.Helper()
	file, err := process.KubeProxyBinary()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// OneRoundOfMany fails the test unless each bar of nothing at all is missed once something has happened in one of thirty rounds: a median, and its
// interval, would not show it.
func OneRoundOfMany(t testing.TB, columns []measure.Metric, bars []measure.Bar) {
	t.Helper()
	const ours = "ours"
	for _, b := range bars {
		if b.Bar != 0 || b.To != "" || b.ToKey != "" {
			continue
		}
		table := measure.NewTable("row", "", columns, measure.Subject{Name: ours, Ours: true})
		for i := range 30 {
			value := 0.0
			if i == 17 {
				value = 1
			}
			table.Samples[ours] = append(table.Samples[ours], measure.Sample{Values: map[string]float64{b.Key: value}})
		}
		b.Of = ""
		table.Judge([]measure.Bar{b})
		if len(table.Judged) != 1 || table.Judged[0].Verdict != measure.Missed {
			t.Errorf("%s: %v; want one verdict: %s", b.Key, table.Judged, measure.Missed)
		}
	}
}

// ReadReport reads what -json has written.
func ReadReport(t testing.TB, file string) (r measure.Report) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}
