//go:build linux

package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOutsideIsTheTableOfTheSignTest(t *testing.T) {
	// From any table of confidence intervals for the median: 15 values, the 4th and the 12th.
	for n, want := range map[int]int{1: 0, 5: 0, 6: 1, 8: 1, 9: 2, 11: 2, 12: 3, 15: 4, 20: 6, 25: 8, 30: 10, 100: 40} {
		if got := outside(n); got != want {
			t.Errorf("outside(%d) = %d; want %d", n, got, want)
		}
	}
}

func TestSpreadOf(t *testing.T) {
	fifteen := []float64{15, 1, 14, 2, 13, 3, 12, 4, 11, 5, 10, 6, 9, 7, 8}
	for _, c := range []struct {
		name   string
		values []float64
		want   Spread
	}{
		{"odd", fifteen, Spread{Median: 8, Low: 4, High: 12, N: 15, Sure: true}},
		{"even", []float64{6, 5, 4, 3, 2, 1}, Spread{Median: 3.5, Low: 1, High: 6, N: 6, Sure: true}},
		{"too few for an interval", []float64{3, 1, 2}, Spread{Median: 2, Low: 1, High: 3, N: 3}},
		{"one", []float64{7}, Spread{Median: 7, Low: 7, High: 7, N: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.values)
			if diff := cmp.Diff(c.want, SpreadOf(c.values)); diff != "" {
				t.Errorf("SpreadOf(%v) (-want +got):\n%s", c.values, diff)
			}
			if !slices.Equal(before, c.values) {
				t.Errorf("the values are now %v", c.values) // rounds would no longer be paired
			}
		})
	}
	if got := SpreadOf(nil); !math.IsNaN(got.Median) || got.N != 0 {
		t.Errorf("SpreadOf(nothing) = %+v", got)
	}
}

// Whatever the noise looks like, 95 of 100 intervals hold the truth.
func TestTheIntervalHoldsTheTrueMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const trials = 4000
	for _, n := range []int{6, 15, 30} {
		held := 0
		for range trials {
			values := make([]float64, n)
			for i := range values {
				values[i] = math.Exp(3 * random.NormFloat64()) // its median is 1, its mean 90
			}
			if s := SpreadOf(values); s.Low <= 1 && 1 <= s.High {
				held++
			}
		}
		if share := float64(held) / trials; share < 0.94 || share > 0.985 {
			t.Errorf("of %d values: the interval held the median in %.3f of all trials", n, share)
		}
	}
}

// The median is a quantile, too.
func TestTheMiddleQuantileIsTheMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for n := 1; n < 40; n += 2 {
		values := make([]float64, n)
		for i := range values {
			values[i] = random.NormFloat64()
		}
		if diff := cmp.Diff(SpreadOf(values), QuantileOf(values, 0.5)); diff != "" {
			t.Errorf("%d values (-SpreadOf +QuantileOf):\n%s", n, diff)
		}
	}
}

func TestTheIntervalHoldsTheTrueQuantile(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	const trials = 2000
	held := 0
	for range trials {
		values := make([]float64, 750)
		for i := range values {
			values[i] = random.Float64()
		}
		s := QuantileOf(values, 0.99)
		if !s.Sure {
			t.Fatalf("%d values are said to be too few", len(values))
		}
		if s.Low <= 0.99 && 0.99 <= s.High {
			held++
		}
	}
	if share := float64(held) / trials; share < 0.94 || share > 0.985 {
		t.Errorf("the interval held the quantile in %.3f of all trials", share)
	}
	if s := QuantileOf(make([]float64, 100), 0.99); s.Sure {
		t.Error("100 values are enough to bound what one of them exceeds")
	}
}

func TestPairedDifferencesMayBeOfZeros(t *testing.T) {
	got := PairedDifferences([]float64{0, 3, math.NaN()}, []float64{0, 5, 1})
	if diff := cmp.Diff([]float64{0, -2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPairedRatiosLeaveOutWhatHasNone(t *testing.T) {
	got := PairedRatios([]float64{2, math.NaN(), 3, 4, 5}, []float64{1, 1, math.NaN(), 0, 10})
	if diff := cmp.Diff([]float64{2, 0.5}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// In a machine that gets slower from round to round, the ratio within a round stays.
	ours, theirs := []float64{1.1, 2.2, 4.4, 8.8}, []float64{1, 2, 4, 8}
	if s := SpreadOf(PairedRatios(ours, theirs)); math.Abs(s.High-1.1) > 1e-9 || math.Abs(s.Low-1.1) > 1e-9 {
		t.Errorf("the ratios of %v and %v are %+v; want 1.1 in every round", ours, theirs, s)
	}
}

func TestHistogramIsExactToOnePercent(t *testing.T) {
	for ns := uint64(1); ns < 1<<41; ns = ns*17/16 + 1 {
		middle := middleOf(bucketOf(ns))
		if off := math.Abs(middle-float64(ns)) / float64(ns); off > 0.005 {
			t.Fatalf("%d ns is counted as %.0f", ns, middle)
		}
		if b := bucketOf(ns); b < bucketOf(ns-1) {
			t.Fatalf("%d ns is in bucket %d, below the one of %d ns", ns, b, ns-1)
		}
	}
	if got := bucketOf(math.MaxUint64); got != fine*36-1 {
		t.Errorf("the longest time is in bucket %d; want the last one", got)
	}
}

func TestQuantilesAreThoseOfTheSortedValues(t *testing.T) {
	var h, rest Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	for i := 1; i <= 1000; i++ { // 1 us to 1 ms, spread over two histograms
		to := &h
		if i%3 == 0 {
			to = &rest
		}
		to.Record(time.Duration(i) * time.Microsecond)
	}
	h.Add(&rest)
	for q, want := range map[float64]float64{0: 1e-6, 0.5: 500e-6, 0.99: 990e-6, 1: 1000e-6} {
		if got := h.Quantile(q); math.Abs(got-want) > 0.006*want {
			t.Errorf("Quantile(%v) = %v; want %v", q, got, want)
		}
	}
}

func TestHistogramsAllocateNothing(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(100, func() { h.Record(time.Millisecond) }); n != 0 {
		t.Errorf("Record allocates %v times", n)
	}
}
