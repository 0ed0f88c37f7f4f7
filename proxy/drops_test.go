package proxy

import "testing"

func TestTheFirstOfManyEventsIsLoudAndTheOthersAreCounted(t *testing.T) {
	var q quieter
	if n, ok := q.ask(1); !ok || n != 1 {
		t.Errorf("the first of all: %d, %v; want a line for 1", n, ok)
	}
	for range 10 {
		if _, ok := q.ask(2); ok {
			t.Error("a second line within the minute")
		}
	}
	q.next.Add(-int64(quietFor)) // a minute later
	if n, ok := q.ask(1); !ok || n != 21 {
		t.Errorf("a minute later: %d, %v; want a line for 21", n, ok)
	}
	if _, ok := q.ask(1); ok {
		t.Error("a second line within the next minute")
	}
}

func TestEveryDropReasonHasANameAndACode(t *testing.T) {
	seen := make(map[string]bool)
	for _, why := range DropReasons() {
		for _, name := range []string{why.String(), "code " + why.Code()} {
			if name == "" || name == "code " || seen[name] {
				t.Errorf("reason %d is called %q", why, name)
			}
			seen[name] = true
		}
	}
}
