package verbs

import (
	"strings"
	"testing"

	"kubeproxy/cmd/internal/control"
)

// TestALogOfNothingSaysWhyItIsEmpty: nothing was asked for, nothing has changed, or nothing of the service that is remembered.
func TestALogOfNothingSaysWhyItIsEmpty(t *testing.T) {
	for _, c := range []struct {
		ever  uint64
		asked int
		want  string
	}{{0, 20, "no change since the first state was in force\n"}, {9, 20, "no change that is remembered is of this service\n"}, {9, 0, ""}} {
		var said strings.Builder
		if printLog(&said, &control.Log{Ever: c.ever}, c.asked); said.String() != c.want {
			t.Errorf("%d of %d changes: %q; want %q", c.asked, c.ever, &said, c.want)
		}
	}
}
