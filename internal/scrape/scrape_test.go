package scrape

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

const page = `# HELP dropped Why.
# TYPE dropped counter
dropped{service="a b",reason="queue_full"} 5
dropped{service="c",reason="x"} 2
dropped{service="a \"c\"",reason="x"} 1
dropped_too 7
seconds 1.5e-05
`

func parsed(t *testing.T) Metrics {
	t.Helper()
	all, err := Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMetricsAreTheSumOfTheirSeries(t *testing.T) {
	all := parsed(t)
	for _, c := range []struct {
		labels []string
		want   float64
	}{
		{nil, 8},
		{[]string{"reason", "queue_full"}, 5},
		{[]string{"service", "a*"}, 6},
		{[]string{"service", "a*", "reason", "x"}, 1},
		{[]string{"service", "a"}, 0},
		{[]string{"service", `a "c"`}, 1},
		{[]string{"port", "*"}, 0},
	} {
		if got := all.Sum("dropped", c.labels...); got != c.want {
			t.Errorf("dropped with %q: %v; want %v", c.labels, got, c.want)
		}
	}
	if got := all.Sum("received"); got != 0 {
		t.Errorf("a metric that is not there: %v; want 0", got)
	}
}

func TestSumsAreKeptApartByALabel(t *testing.T) {
	all := parsed(t)
	if got, want := all.SumBy("reason", "dropped"), map[string]float64{"queue_full": 5, "x": 3}; !maps.Equal(got, want) {
		t.Errorf("by reason: %v; want %v", got, want)
	}
	if got, want := all.SumBy("port", "dropped", "reason", "x"), map[string]float64{"": 3}; !maps.Equal(got, want) {
		t.Errorf("by a label that no series has: %v; want %v", got, want)
	}
}

func TestAMetricThatHasToBeThereIsMissed(t *testing.T) {
	all := parsed(t)
	if got, err := all.Must("seconds", "dropped_too"); err != nil || !slices.Equal(got, []float64{1.5e-05, 7}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := all.Must("received"); err == nil {
		t.Error("a metric that is not there was not missed")
	}
}

func TestAPageThatIsNotOfTheFormatIsAnError(t *testing.T) {
	if _, err := Parse(strings.NewReader("dropped{ 1\n")); err == nil {
		t.Error("no error")
	}
}
