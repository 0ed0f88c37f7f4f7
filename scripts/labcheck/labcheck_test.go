package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{"web-1", "web-1", true},
		{"web-1", "web-10", false},
		{"", "", true},
		{"", "x", false},
		{"…", "", true},
		{"…", "anything at all", true},
		{"web-1: …", "web-1: 17", true},
		{"web-1: …", "web-2: 17", false},
		{"reset after …s", "reset after 3.4s", true},
		{"reset after …s", "reset after 3.4", false},
		{"E…] bad value of key …: …", `E1121 01:02:03.4 1 state.go:100] bad value of key "k": no`, true},
		{"a…a", "a", false}, // the two ends are not the same letter
		{"…a…a", "banana", true},
		{"a.c", "abc", false}, // a dot is a dot
	} {
		if got := matches(c.want, c.got); got != c.ok {
			t.Errorf("matches(%q, %q) = %v", c.want, c.got, got)
		}
	}
}

func TestMismatchNamesTheFirstWrongLine(t *testing.T) {
	for _, c := range []struct {
		name      string
		want, got []string
		line      int
		problem   string
	}{
		{"as expected", []string{"a", "b "}, []string{"a", "b"}, 0, ""},
		{"nothing", nil, nil, 0, ""},
		{"another line", []string{"a", "b"}, []string{"a", "c"}, 1, `want "b"; got "c"`},
		{"too few", []string{"a", "b"}, []string{"a"}, 1, `want "b"; got no more lines`},
		{"too many", []string{"a"}, []string{"a", "b"}, 1, `want no more lines; got "b"`},
	} {
		line, problem := mismatch(c.want, c.got)
		if line != c.line || problem != c.problem {
			t.Errorf("%s: got line %d, %q; want line %d, %q", c.name, line, problem, c.line, c.problem)
		}
	}
}

func TestParseFindsEveryBlock(t *testing.T) {
	blocks, err := parse("# A drill\n\n```sh\necho a\necho b\n```\n\nYou see:\n\n```text\na\nb\n```\n\n```sh containers\ntrue\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []block{
		{line: 4, script: "echo a\necho b\n", want: []string{"a", "b"}, wantLine: 11},
		{line: 16, script: "true\n", needs: "containers", wantLine: 16},
	}
	if diff := cmp.Diff(want, blocks, cmp.AllowUnexported(block{})); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefusesWhatWouldNotBeChecked(t *testing.T) {
	for text, want := range map[string]string{
		"```bash\ntrue\n```\n":                              "1: a fence that is neither",
		"\n```\ntrue\n```\n":                                "2: a fence that is neither",
		"```sh evenutally\ntrue\n```\n":                     "1: \"evenutally\" means nothing",
		"```text\na\n```\n":                                 "1: output without commands",
		"```sh\ntrue\n```\n```text\n```\n```text\na\n```\n": "6: output without commands",
		"```sh\ntrue\n":                                     "1: the fence that begins here never ends",
		"```sh\ntrue\n```sh\nfalse\n```\n":                  "3: a fence begins inside the one of line 1",
	} {
		if _, err := parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("parse(%q): %v; want %q", text, err, want)
		}
	}
}

// TestADrillThatLiesFails runs small drills, true ones and false ones, and looks for the place that
// the failures name.
func TestADrillThatLiesFails(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"true", "```sh\nprintf 'one\\ntwo'\n```\n```text\none\ntwo\n```\n", ""},
		{"errors count as output", "```sh\necho oh >&2\n```\n```text\noh\n```\n", ""},
		{"one shell for all blocks", "```sh\nx=1\n```\n```sh\necho $x\n```\n```text\n1\n```\n", ""},
		{"here documents", "```sh\ncat <<'E'\n$x\nE\n```\n```text\n$x\n```\n", ""},
		{"commands cannot eat the commands after them", "```sh\ncat\necho a\n```\n```text\na\n```\n", ""},
		{"a variable", "```sh\necho 10.77.1.2\n```\n```text\n10.77.1.2\n```\n", ""},
		{"not here", "```sh containers\nfalse; echo never\n```\n", ""},
		{"wrong line", "```sh\necho one; echo two\n```\n\n```text\none\nthree\n```\n", `:7: want "three"; got "two"`},
		{"unexpected output", "```sh\ntrue\necho oh\n```\n", `:3: want no more lines; got "oh"`},
		{"missing output", "```sh\ntrue\n```\n```text\noh\n```\n", `:5: want "oh"; got no more lines`},
		{"the end of the shell", "```sh\nexit 0\n```\n", ":2: the shell ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "drill.md")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := load(file)
			if err != nil {
				t.Fatal(err)
			}
			d.substitute([][2]string{{"10.77.", "127.77."}})
			err = check(d, map[string]bool{"containers": true}, false)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), file+c.want)):
				t.Errorf("got %v; want %s%s", err, file, c.want)
			}
		})
	}
}
