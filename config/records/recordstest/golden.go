package recordstest

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Golden compares a text with a file, or writes it there if update is set.
func Golden(t testing.TB, file, text string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s: not as before (-want +got; -update writes it anew):\n%s", file, diff)
	}
}
