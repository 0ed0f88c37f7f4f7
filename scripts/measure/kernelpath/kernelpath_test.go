//go:build linux

package kernelpath

import (
	"errors"
	"slices"
	"testing"

	"kubeproxy/scripts/internal/measure"
)

func TestACommandLineThatIsNotUnderstoodIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-rounds=0"}, {"-services=-1"}, {"-services=60000"}, {"-changes"}, {"-changes", "-services=1", "-old=x"}, {"-time=0"}, {"more"}, {"-nothing"}} {
		if _, err := parseOptions(args); !errors.As(err, new(measure.UsageError)) {
			t.Errorf("%q: %v; want a usage error", args, err)
		}
	}
}

func TestEveryBarIsOfAFigureThatIsMeasured(t *testing.T) {
	keys, subjects := make(map[string]bool), make(map[string]bool)
	for _, c := range columns {
		keys[c.Key] = true
	}
	for _, w := range append(slices.Clone(ways), asBefore) {
		subjects[w.subject.Name] = true
	}
	for _, b := range slices.Concat(bars, oldBars) {
		if !keys[b.Key] || !subjects[b.To] {
			t.Errorf("%+v: there is no such column, or no such subject", b)
		}
	}
}
