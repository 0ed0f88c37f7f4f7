package registry

import (
	"slices"
	"strings"
	"testing"
)

func TestNamesAsText(t *testing.T) {
	label := strings.Repeat("a", 63)
	long := strings.Repeat("a", 1<<20)
	for _, c := range []struct {
		name Name
		want string
	}{
		{Name{"default", "frontend"}, "frontend"},
		{Name{"prod", "frontend"}, "prod/frontend"},
		{Name{"Prod-1", "my_svc.v2"}, "Prod-1/my_svc.v2"},
		{Name{label, label}, label + "/" + label},
		{Name{"default", ""}, `""`},
		{Name{"default", "a b"}, `"a b"`},
		{Name{"default", "x\nE1120 00:00:00 fake.go:1] pwned \x1b[31m"}, `"x\nE1120 00:00:00 fake.go:1] pwned \x1b[31m"`},
		{Name{"a\"", "b"}, `"a\"/b"`},
		{Name{"default", "\xff\u202e"}, `"\xff\u202e"`},
		{Name{"default", long}, `"` + long[:100] + `"… (1048576 bytes)`},
	} {
		got := c.name.String()
		checkLine(t, got)
		if got != c.want {
			t.Errorf("%.200q: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestPortKeysAsText(t *testing.T) {
	hostile := strings.Repeat("\xff", 1000)
	for _, c := range []struct {
		key  PortKey
		want string
	}{
		{PortKey{Name{"default", "frontend"}, ""}, "frontend"},
		{PortKey{Name{"default", "frontend"}, "http"}, "frontend:http"},
		{PortKey{Name{"prod", "frontend"}, "http"}, "prod/frontend:http"},
		{PortKey{Name{"prod", "frontend"}, "a:b\n"}, `prod/frontend:"a:b\n"`},
		{PortKey{Name{"default", hostile}, hostile}, Quote(hostile) + ":" + Quote(hostile)},
	} {
		got := c.key.String()
		checkLine(t, got)
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.key, got, c.want)
		}
	}
}

func TestNamesAreOrderedByNamespaceThenName(t *testing.T) {
	want := []Name{{"", "z"}, {"a", "b"}, {"a", "c"}, {"a-b", "a"}, {"b", "a"}, {"b", "aa"}}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Name.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("sorted: %q, want %q", got, want)
	}
	for i, n := range want {
		for j, m := range want {
			if c := n.Compare(m); (c < 0) != (i < j) || (c == 0) != (i == j) {
				t.Errorf("%q compared with %q: %d", n, m, c)
			}
		}
	}
}

// What writes records writes no name that a terminal would take for more than a name.
func TestANameToBeWrittenIsMadeOfPlainCharacters(t *testing.T) {
	for name, ok := range map[Name]bool{
		{"default", "web"}: true, {"shop.example", "Web-2_a.b"}: true,
		{"default", ""}: false, {"", "web"}: false, {"default", "we b"}: false, {"default", "web\x1b]52;c;eA==\a"}: false, {"default", "wéb"}: false,
		{"a/b", "web"}: false, {"default", strings.Repeat("x", MaxName+1)}: false,
	} {
		if err := name.Check(); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
