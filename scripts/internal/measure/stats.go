package measure

import (
	"fmt"
	"math"
	"slices"
)

// A Spread is the median of some values, and the interval that holds the true median.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	N      int     `json:"n"`
	// Sure reports whether the interval holds the true median with at least 95 %. With fewer than six
	// values there is no such interval, and Low and High are merely the smallest and the largest.
	Sure bool `json:"sure"`
}

// String gives the median, and the interval if there is more than one value.
func (s Spread) String() string {
	text := Figure(s.Median)
	if s.N > 1 {
		text += fmt.Sprintf(" [%s, %s]", Figure(s.Low), Figure(s.High))
	}
	return text
}

// SpreadOf gives the spread of some values. The interval is made of order statistics: how many of n
// values lie below the true median is like n tosses of a coin, whatever the values are drawn from.
// So there is nothing to assume about how noise is shaped, and one wild round moves nothing.
func SpreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return Spread{Median: math.NaN(), Low: math.NaN(), High: math.NaN()}
	}
	s := Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Low: sorted[0], High: sorted[n-1], N: n}
	if k := outside(n); k > 0 {
		s.Low, s.High, s.Sure = sorted[k-1], sorted[n-k], true
	}
	return s
}

// outside gives the largest k such that the k-th smallest and the k-th largest of n values have the
// true median between them with at least 95 %; 0 if even the smallest and the largest do not.
func outside(n int) int {
	below := 0.0 // the chance that fewer than k values lie below the median
	term := math.Pow(0.5, float64(n))
	for k := 0; ; k++ {
		if below += term; below > 0.025 {
			return k
		}
		term *= float64(n-k) / float64(k+1)
	}
}

// PairedRatios divides what was measured in the same round. Rounds in which either is missing, or
// the divisor is zero, have no ratio.
func PairedRatios(ours, theirs []float64) []float64 {
	var ratios []float64
	for i := range min(len(ours), len(theirs)) {
		if r := ours[i] / theirs[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			ratios = append(ratios, r)
		}
	}
	return ratios
}

// PairedDifferences subtracts what was measured in the same round, of others from ours.
func PairedDifferences(ours, theirs []float64) []float64 {
	var differences []float64
	for i := range min(len(ours), len(theirs)) {
		if d := ours[i] - theirs[i]; !math.IsNaN(d) {
			differences = append(differences, d)
		}
	}
	return differences
}

// QuantileOf gives a quantile of some values, and the interval that holds the true one, by the same
// argument as [SpreadOf]: how many of n values lie below the true quantile is like n throws of a coin that
// falls on one side with q.
func QuantileOf(values []float64, q float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return Spread{Median: math.NaN(), Low: math.NaN(), High: math.NaN()}
	}
	s := Spread{Median: sorted[min(n-1, int(q*float64(n)))], Low: sorted[0], High: sorted[n-1], N: n}
	low, high := -1, -1
	atMost := 0.0 // the chance that at most k values lie below the quantile
	for k := range n {
		atMost += binomial(n, k, q)
		if atMost <= 0.025 {
			low = k
		}
		if atMost >= 0.975 && high < 0 {
			high = k
		}
	}
	if low >= 0 && high >= 0 {
		s.Low, s.High, s.Sure = sorted[low], sorted[high], true
	}
	return s
}

// binomial gives the chance of k among n, each of which has the chance q.
func binomial(n, k int, q float64) float64 {
	ways := func(n int) float64 {
		log, _ := math.Lgamma(float64(n + 1))
		return log
	}
	return math.Exp(ways(n) - ways(k) - ways(n-k) + float64(k)*math.Log(q) + float64(n-k)*math.Log(1-q))
}

// Figure shows a number with three digits that matter.
func Figure(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
