package docs

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheCompatTableIsTrue reads docs/compat.md: each row has an id, what v0.4 did, a verdict, and
// the tests that show it. All 49 defects and all behaviours of the old tests must be there, and
// every test that is named must exist.
func TestTheCompatTableIsTrue(t *testing.T) {
	text, err := os.ReadFile("compat.md")
	if err != nil {
		t.Fatal(err)
	}
	verdicts := []string{"kept", "mended", "not applicable"}
	exists := testNames(t)
	seen := make(map[string]bool)
	id := regexp.MustCompile(`^(D|U)\d+$`)
	named := regexp.MustCompile("`((?:Test|Fuzz|Example|Benchmark)[A-Za-z0-9_]*)`")
	for n, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || !id.MatchString(strings.TrimSpace(cells[0])) {
			continue
		}
		where := fmt.Sprintf("compat.md:%d", n+1)
		if len(cells) != 4 {
			t.Errorf("%s: %d cells; want id, what v0.4 did, verdict, shown by", where, len(cells))
			continue
		}
		row, verdict, shown := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[2]), cells[3]
		if seen[row] {
			t.Errorf("%s: %s stands here for the second time", where, row)
		}
		seen[row] = true
		if !slices.ContainsFunc(verdicts, func(v string) bool { return strings.HasPrefix(verdict, v) }) {
			t.Errorf("%s: the verdict on %s is %q; want it to begin with one of %q", where, row, verdict, verdicts)
		}
		tests := named.FindAllStringSubmatch(shown, -1)
		if len(tests) == 0 && !strings.HasPrefix(verdict, "not applicable") {
			t.Errorf("%s: %s names no test", where, row)
		}
		for _, m := range tests {
			if !exists[m[1]] {
				t.Errorf("%s: %s is to be shown by %s, which does not exist", where, row, m[1])
			}
		}
	}
	for kind, count := range map[string]int{"D": 49, "U": 29} {
		for i := range count {
			if row := fmt.Sprintf("%s%d", kind, i+1); !seen[row] {
				t.Errorf("compat.md: %s is missing", row)
			}
		}
	}
}
