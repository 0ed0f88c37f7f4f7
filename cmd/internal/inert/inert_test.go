package inert

import (
	"encoding/json"
	"strings"
	"testing"
)

// hostile is a text that would clear a terminal, set its title, turn a line around, and hide what follows.
const hostile = "a\x1b[2J\x1b]0;x\a\u202eb\u0085c\x7f\U000e0041<&"

func TestATerminalOnlyShowsJSONThatSaysWhatItWas(t *testing.T) {
	for what, write := range map[string]func(any) ([]byte, error){"a document": Document, "a line": Line} {
		text, err := write(map[string]string{hostile: hostile})
		if err != nil || strings.ContainsFunc(string(text), func(r rune) bool { return !Shows(r) }) {
			t.Errorf("%s: %q, %v", what, text, err)
		}
		var back map[string]string
		if err := json.Unmarshal(text, &back); err != nil || back[hostile] != hostile {
			t.Errorf("%s reads %q, %v; want %q", what, back, err, hostile)
		}
		if what == "a line" && strings.Count(string(text), "\n") != 1 {
			t.Errorf("not one line: %s", text)
		}
	}
}

func TestATerminalOnlyShowsText(t *testing.T) {
	var shown strings.Builder
	if n, err := Writer(&shown).Write([]byte(hostile + "\xff\n")); err != nil || n != len(hostile)+2 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if want := "a?[2J?]0;x??b?c??<&?\n"; shown.String() != want {
		t.Errorf("shown as %q; want %q", shown.String(), want)
	}
}
