package registry

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLabelsAreReadableWhereNamesAre(t *testing.T) {
	for name, want := range map[Name]string{
		{"default", "web"}:      "default/web",
		{"team-a", "żółć"}:      "team-a/żółć",
		{"default", "<b>&amp;"}: "default/<b>&amp;",
		{"default", "a\nb"}:     `"default/a\nb"`,
		{"default", `a"b`}:      `"default/a\"b"`,
		{"default", "\xff"}:     `"default/\xff"`,
	} {
		if got := name.Label(); got != want {
			t.Errorf("the label of %q is %s, want %s", name, got, want)
		}
	}
}

// TestLabelsAreHarmlessBoundedAndTellNamesApart: whatever bytes an etcd key holds.
func TestLabelsAreHarmlessBoundedAndTellNamesApart(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	texts := []string{"", `""`, "a", `"a"`, `"a\n"`, "a\n", `a\n`, "\xff", "\xfe", `\xff`, "\ufffd", "\u202e", "\u009b", long, long + "y", long + "z", Quote(long)}
	seen := make(map[string]string)
	for _, s := range texts {
		label := Label(s)
		if other, ok := seen[label]; ok {
			t.Errorf("%.40q and %.40q have the same label %s", s, other, label)
		}
		seen[label] = s
		if !utf8.ValidString(label) || len(label) > 4*maxLabelled+2 {
			t.Errorf("the label of %.40q has %d bytes: %q", s, len(label), label)
		}
		for _, r := range label {
			if !strconv.IsPrint(r) {
				t.Errorf("the label of %.40q holds %q", s, r)
			}
		}
	}
}
