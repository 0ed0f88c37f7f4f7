package spelling

import "testing"

// The distance counts what fingers do wrong, and a pair further apart than the limit is not compared to its end.
func TestTheDistanceCountsWhatAFingerDoesWrong(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"check", "check", 0}, {"chek", "check", 1}, {"chheck", "check", 1},
		{"chack", "check", 1}, {"hceck", "check", 1}, {"abcd", "dcba", 3}, {"ca", "abc", 3},
	} {
		for limit := range 5 {
			if got := Distance(c.a, c.b, limit); got != min(c.want, limit) {
				t.Errorf("Distance(%q, %q, %d) = %d, want %d", c.a, c.b, limit, got, min(c.want, limit))
			}
		}
	}
}
